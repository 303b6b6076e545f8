/* What a line of events.h is: the beginning of a history, the end of a call, or a call that is sent. */
#define RESET 0
#define SUCCEED 1
#define FAIL 2
#define FORGET 3   /* a call that has no effect any more */
#define FREE 4     /* a number of an operation id that is used no more */
#define OBSERVE 5  /* what a client sees at once */
#define OWNER 6    /* what the store has at once */
#define GIVE_UP 7  /* a client takes itself for the holder no more */
#define ACQUIRE 8
#define CLAIM 9
#define READ 10
#define CLAIM_AND_READ 11
#define WRITE 12
#define RELEASE 13
#define SELL 14
#define RESERVE 15
#define CONFIRM 16
#define CANCEL 17
#define CLAIM_RUN 18
#define RECORD 19
#define PARK 20
#define COMPLETE 21
#define END_RUN 22
#define CANCEL_RUN 23
