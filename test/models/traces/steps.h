/* What a line of events.h is: the beginning of a history, the end of a call, or a call that is sent. */
#define RESET 0
#define SUCCEED 1
#define FAIL 2
#define FORGET 3   /* a call that has no effect any more */
#define FREE 4     /* a number of an operation id that is used no more */
#define OBSERVE 5  /* what a client sees at once */
#define ACQUIRE 6
#define CLAIM 7
#define READ 8
#define CLAIM_AND_READ 9
#define WRITE 10
#define RELEASE 11
#define SELL 12
#define RESERVE 13
#define CONFIRM 14
#define CANCEL 15
#define CLAIM_RUN 16
#define RECORD 17
#define PARK 18
#define COMPLETE 19
#define END_RUN 20
#define CANCEL_RUN 21
