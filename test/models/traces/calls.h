/* The calls that were sent, and the next event. Columns that a model does not have are 0. */
#include "steps.h"

c_decl {
\#include "steps.h"
\#include "events.h"
}

byte call[CALLS];
int token[CALLS];
int value[CALLS];      /* what is read or left */
int units[CALLS];
int id[CALLS];         /* the number of the operation id */
int reservedBy[CALLS]; /* the number of the reservation's operation id */

/* Whether the call has taken effect, and whether the resource, the lock or the journal took it. */
bool isDone[CALLS];
bool isAccepted[CALLS];

byte nextStep, nextCall;
int nextToken, nextValue, nextUnits, nextId, nextReservedBy;

/* Of the event after it: what happens without an event happens before that. */
int timeAhead;
bool isOwnerAhead;

#define isSent(c, what) (call[c] == what && !isDone[c])
