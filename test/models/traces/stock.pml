/*
 * Histories of stock as paths of stock.pml; replay.h says how.
 *
 * The first call of an operation id that takes effect decides the answer to all of them. Times are left out: a reservation may be refused
 * a confirmation, and expire, at any moment.
 */
#define TRACE
#define NUMBER int
#define CLIENTS IDS
#define INITIAL supplied

int supplied;

#include "stock.pml"
#include "calls.h"

#define UNKNOWN -1

/* The answer to an operation id. */
bool isAnswered[IDS + 1];
bool isApplied[IDS + 1];
int left[IDS + 1];
int asked[IDS + 1];   /* the units */

#define isSucceeded(c) (isDone[c] && isAccepted[c])
#define isFailed(c) (isDone[c] && !isAccepted[c])
inline observe() { onHand == nextValue }

#define isFirst(c, what) (isSent(c, what) && !isAnswered[id[c]])
#define isLeft(c, number) (value[c] == UNKNOWN || value[c] == number)

inline free(number) {
  isAnswered[number] = false; isApplied[number] = false; left[number] = 0; asked[number] = 0;
  isSold[number] = false; sales[number] = 0; reservation[number] = none; held[number] = 0
}

inline reset(start) {
  supplied = start; onHand = start; reserved = 0; sold = 0;
  for (i : 0 .. IDS) { free(i) }
}

inline answer(me, isTaken) {
  isAnswered[id[me]] = true; isApplied[id[me]] = isTaken; left[id[me]] = onHand; asked[id[me]] = units[me];
  isAccepted[me] = isTaken; isDone[me] = true
}

proctype Call(byte me) {
  do
  :: atomic {
      call[me] != 0 && !isDone[me] && isAnswered[id[me]] && isLeft(me, left[id[me]]) && units[me] == asked[id[me]] ->
      isAccepted[me] = isApplied[id[me]]; isDone[me] = true
    }
  :: atomic {
      isFirst(me, SELL) && onHand >= units[me] && isLeft(me, onHand - units[me]) ->
      sell(id[me], units[me]); answer(me, true)
    }
  :: atomic {
      isFirst(me, RESERVE) && onHand >= units[me] && isLeft(me, onHand - units[me]) ->
      reserve(id[me], units[me]); answer(me, true)
    }
  :: atomic {
      (isFirst(me, SELL) || isFirst(me, RESERVE)) && onHand < units[me] && isLeft(me, onHand) -> answer(me, false)
    }
  :: atomic {
      isFirst(me, CONFIRM) && reservation[reservedBy[me]] == open && isLeft(me, onHand) ->
      confirm(reservedBy[me]); answer(me, true)
    }
  :: atomic {
      isFirst(me, CANCEL) && reservation[reservedBy[me]] == open && isLeft(me, onHand + held[reservedBy[me]]) ->
      returnUnits(reservedBy[me]); answer(me, true)
    }
  :: atomic { isFirst(me, CONFIRM) && reservation[reservedBy[me]] != none && isLeft(me, onHand) -> answer(me, false) }
  :: atomic {
      isFirst(me, CANCEL) && (reservation[reservedBy[me]] == confirmed || reservation[reservedBy[me]] == closed) &&
      isLeft(me, onHand) -> answer(me, false)
    }
  od
}

proctype Others() {
  int i;
end:
  do
  :: atomic { select(i : 0 .. IDS); reservation[i] == open -> returnUnits(i); i = 0 }
  od
}

#include "replay.h"
