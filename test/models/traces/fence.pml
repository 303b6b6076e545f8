/*
 * Histories of real clients as paths of fence.pml. Each call of a history takes effect by that model's rules, once, at any moment
 * after it was sent and before it was answered. A call without an answer may take effect at any later moment, or never.
 *
 * The file events.h has the events of several histories in the order of time. Here spin looks for a
 * violation of the last assertion: it means that there is a path. Otherwise the last line that the search prints is the
 * number of the event that the model does not allow.
 *
 * Tokens are numbered from 1, without gaps: claims that nobody was told about have the tokens in between. A register counts up; the
 * model's stock counts down.
 */
#define TRACE
#include "fence.pml"

#include "steps.h"

c_decl {
\#include "steps.h"
\#include "events.h"
}

#define HIGHEST 250

/* The calls that were sent. A call is done when it has taken effect. */
byte call[CALLS];
byte token[CALLS];
byte seen[CALLS];
bool isDone[CALLS];

/* Whether the resource took the fence, or the lock was released by its holder. */
bool isAccepted[CALLS];

/* The number of the next event, and the event. */
int line;
byte nextStep, nextCall, nextToken, nextValue;

inline forget(c) {
  call[c] = 0; token[c] = 0; seen[c] = 0; isDone[c] = false; isAccepted[c] = false
}

proctype Call(byte me) {
  byte got;
  do
  :: atomic {
      call[me] == ACQUIRE && !isDone[me] && holder == 0 && lastToken + 1 == token[me] ->
      acquire(token[me], got); isAccepted[me] = true; isDone[me] = true; got = 0
    }
  :: atomic { call[me] == CLAIM && !isDone[me] -> claim(token[me], isAccepted[me]); isDone[me] = true }
  :: atomic { call[me] == READ && !isDone[me] && stock == seen[me] -> isAccepted[me] = true; isDone[me] = true }
  /* The model forbids a write over a value that was not read: such a path ends here. */
  :: atomic {
      call[me] == WRITE && !isDone[me] && (token[me] < claimed || stock == seen[me]) ->
      isAccepted[me] = (token[me] >= claimed); write(token[me], seen[me]); isDone[me] = true
    }
  :: atomic {
      call[me] == RELEASE && !isDone[me] ->
      isAccepted[me] = (holder == token[me]); release(token[me]); isDone[me] = true
    }
  od
}

init {
  byte i;
  atomic {
    run Expiry();
    for (i : 0 .. CALLS - 1) { run Call(i) }
    i = 0
  };
  do
  :: line == EVENTS -> break
  :: else ->
    atomic {
      c_code {
        now.nextStep = events[now.line].step; now.nextCall = events[now.line].call;
        now.nextToken = events[now.line].token; now.nextValue = events[now.line].value;
        if (now.line > furthest) { furthest = now.line; printf("event %d\n", furthest); }
      };
      if
      :: nextStep == RESET ->
        holder = 0; lastToken = 0; claimed = 0; stock = HIGHEST;
        for (i : 0 .. CALLS - 1) { forget(i) }
        i = 0
      :: nextStep == SUCCEED -> call[nextCall] != 0 && isDone[nextCall] && isAccepted[nextCall] -> forget(nextCall)
      :: nextStep == FAIL -> call[nextCall] != 0 && isDone[nextCall] && !isAccepted[nextCall] -> forget(nextCall)
      :: nextStep == HOLD -> holder == nextToken
      :: nextStep >= ACQUIRE -> call[nextCall] = nextStep; token[nextCall] = nextToken; seen[nextCall] = HIGHEST - nextValue
      fi;
      line++
    }
  od;
  assert(false)
}
