/*
 * Stock with operation ids and reservations. Answers are lost, so clients repeat each call; reservations expire at any
 * moment; a confirmation and a cancellation race with the expiry. Each call is one transaction.
 *
 * The properties: initial = on hand + reserved + sold at every commit, and each operation takes effect at most once.
 *
 * Left out: fences (see fence.pml), several skus, restocking and batches.
 *
 * Mutants: NO_OPERATION_ID (a repeated call is executed again), EXPIRE_ANY (an expiry does not look whether the reservation is
 * still open).
 */
#ifndef INITIAL
#define INITIAL 3
#define CLIENTS 3
#define NUMBER byte
#endif

mtype = { none, open, confirmed, closed };

NUMBER onHand = INITIAL;
NUMBER reserved;
NUMBER sold;
mtype reservation[CLIENTS + 1] = none;
NUMBER held[CLIENTS + 1];   /* the units of the reservation */
bool isSold[CLIENTS + 1];   /* the ledger row of the sale's operation id */
byte sales[CLIENTS + 1];

#define isConserved (onHand + reserved + sold == INITIAL)

inline sell(me, quantity) {
  atomic {
    if
#ifdef NO_OPERATION_ID
    :: onHand >= quantity -> onHand = onHand - quantity; sold = sold + quantity; sales[me]++
#else
    :: !isSold[me] && onHand >= quantity ->
      onHand = onHand - quantity; sold = sold + quantity; isSold[me] = true; sales[me]++
#endif
    :: else
    fi;
    assert(isConserved);
    assert(sales[me] <= 1)
  }
}

inline reserve(me, quantity) {
  atomic {
    if
    :: reservation[me] == none && onHand >= quantity ->
      onHand = onHand - quantity; reserved = reserved + quantity; held[me] = quantity; reservation[me] = open
    :: else
    fi;
    assert(isConserved)
  }
}

inline confirm(me) {
  atomic {
    if
    :: reservation[me] == open -> reserved = reserved - held[me]; sold = sold + held[me]; reservation[me] = confirmed
    :: else
    fi;
    assert(isConserved)
  }
}

inline returnUnits(me) {
  atomic {
    if
    :: reservation[me] == open -> reserved = reserved - held[me]; onHand = onHand + held[me]; reservation[me] = closed
    :: else
    fi;
    assert(isConserved)
  }
}

/* traces/stock.pml has clients of its own. */
#ifndef TRACE
proctype Client(byte me) {
  /* Each call may be repeated at any time: its answer may be lost. */
  if
  :: true -> do :: true -> sell(me, 1) :: break od
  :: true ->
    do
    :: true -> reserve(me, 1)
    :: true -> confirm(me)
    :: true -> returnUnits(me)
    :: break
    od
  fi
}

proctype Expiry() {
  byte i;
end:
  do
  :: atomic {
      select(i : 1 .. CLIENTS);
#ifdef EXPIRE_ANY
      if
      :: reservation[i] == open || reservation[i] == confirmed ->
        if :: reserved > 0 -> reserved-- :: else fi;
        onHand++; reservation[i] = closed
      :: else
      fi;
#else
      returnUnits(i);
#endif
      i = 0;
      assert(isConserved)
    }
  od
}

init {
  byte i;
  atomic {
    run Expiry();
    for (i : 1 .. CLIENTS) { run Client(i) }
  }
}
#endif
