/*
 * Histories of locks as paths of withdrawal.pml; replay.h says how.
 *
 * The owner is told by its token. Claims that nobody was told about, and their withdrawals, happen at any moment. A lock may
 * expire at any moment as well: its holder's belief has ended then, and nobody finds the lock held any more. The history also has
 * each change of the owner that the store has: between two of them, none of this happens.
 */
#define TRACE
#define NUMBER int
#include "withdrawal.pml"
#include "calls.h"

#define UNTOLD -1

bool isRecorded;
#define mayChange (!isRecorded || isOwnerAhead)

#define isSucceeded(c) (isDone[c] && isAccepted[c])
/* The store may have let the lock expire, or have dropped it as its holder's belief had ended. */
#define isFailed(c) isDone[c]

inline reset(start) { owner = 0; isRecorded = false }

inline free(number) { skip }

/* What a client believes of itself, or the store's owner: nobody, or a client that was not told, has no token. */
inline observe() {
  nextToken == owner || (nextToken == 0 && owner == UNTOLD);
  isRecorded = isRecorded || nextStep == OWNER
}

proctype Call(byte me) {
  do
  :: atomic {
      isSent(me, ACQUIRE) && isFree && mayChange ->
      claimLock(token[me]); isAccepted[me] = true; isDone[me] = true
    }
  :: atomic {
      isSent(me, RELEASE) && (owner != token[me] || mayChange) ->
      isAccepted[me] = (owner == token[me]); withdraw(token[me]); isDone[me] = true
    }
  od
}

proctype Others() {
end:
  do
  :: atomic { isFree && mayChange -> claimLock(UNTOLD) }
  :: atomic { mayChange -> withdraw(UNTOLD) }
  :: atomic { !isFree && mayChange -> owner = 0 }  /* Expires. */
  od
}

#include "replay.h"
