/* What an event is: the end of a call, the beginning of a history, or a call that is sent. */
#define RESET 0
#define SUCCEED 1
#define FAIL 2
#define HOLD 3
#define ACQUIRE 4
#define CLAIM 5
#define READ 6
#define WRITE 7
#define RELEASE 8
