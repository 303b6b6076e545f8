/*
 * Histories of locks as paths of validity.pml; replay.h says how.
 *
 * Times are numbered in their order. A client that finds its lock held tells until when it believes so: the store has granted the
 * lock for as long, at the least, and grants it to nobody else before. A release ends the belief, and so does a clock that is stepped
 * forward: the client has given its lock up then.
 */
#define TRACE
#define NUMBER int
#include "validity.pml"
#include "calls.h"

int holder;   /* its token; 0 if the lock was released */

#define isSucceeded(c) isDone[c]
/* A release that comes after the belief has ended may find the lock or not. */
#define isFailed(c) true

inline reset(start) { now = 0; expiresAt = 0; validUntil = 0; holder = 0 }

inline free(number) { skip }

inline endBelief() { grant(0); believe(0) }

inline observe() {
  if
  :: nextStep == OBSERVE -> holder == nextToken -> grant(nextValue); believe(nextValue)
  :: nextStep == GIVE_UP && holder == nextToken -> endBelief()
  :: nextStep == GIVE_UP && holder != nextToken
  fi
}

proctype Call(byte me) {
  do
  :: atomic {
      isSent(me, ACQUIRE) && timeAhead >= expiresAt ->
      endBelief(); pass(timeAhead); holder = token[me]; isDone[me] = true
    }
  :: atomic {
      isSent(me, RELEASE) ->
      if :: holder == token[me] -> endBelief(); holder = 0 :: else fi;
      isDone[me] = true
    }
  od
}

proctype Others() { skip }

#include "replay.h"
