/*
 * Histories of locks and registers as paths of fence.pml; replay.h says how.
 *
 * Tokens are numbered from 1, without gaps: claims that nobody was told about have the tokens in between. A register counts up; the
 * model's stock counts down.
 */
#define TRACE
#define NUMBER int
#include "fence.pml"
#include "calls.h"

#define HIGHEST 1000000000
#define seen(c) (HIGHEST - value[c])

#define isSucceeded(c) (isDone[c] && isAccepted[c])
#define isFailed(c) (isDone[c] && !isAccepted[c])
inline observe() { holder == nextToken }

inline reset(start) { holder = 0; lastToken = 0; claimed = 0; stock = HIGHEST - start }

inline free(number) { skip }

proctype Call(byte me) {
  int got;
  do
  :: atomic {
      isSent(me, ACQUIRE) && holder == 0 && lastToken + 1 == token[me] ->
      acquire(token[me], got); isAccepted[me] = true; isDone[me] = true; got = 0
    }
  :: atomic { isSent(me, CLAIM) -> claim(token[me], isAccepted[me]); isDone[me] = true }
  :: atomic { isSent(me, READ) && stock == seen(me) -> isAccepted[me] = true; isDone[me] = true }
  :: atomic { isSent(me, CLAIM_AND_READ) && stock == seen(me) -> claim(token[me], isAccepted[me]); isDone[me] = true }
  /* The model forbids a write over a value that was not read: such a path ends here. */
  :: atomic {
      isSent(me, WRITE) && (token[me] < claimed || stock == seen(me)) ->
      isAccepted[me] = (token[me] >= claimed); write(token[me], seen(me)); isDone[me] = true
    }
  :: atomic {
      isSent(me, RELEASE) ->
      isAccepted[me] = (holder == token[me]); release(token[me]); isDone[me] = true
    }
  od
}

proctype Others() {
end:
  do
  :: atomic { holder != 0 -> holder = 0 }
  od
}

#include "replay.h"
