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
#define INITIAL 3
#define CLIENTS 3

mtype = { none, open, confirmed, closed };

byte onHand = INITIAL;
byte reserved;
byte sold;
mtype reservation[CLIENTS + 1] = none;
bool isSold[CLIENTS + 1];   /* the ledger row of the sale's operation id */
byte sales[CLIENTS + 1];

#define isConserved (onHand + reserved + sold == INITIAL)

inline sell(me) {
  atomic {
    if
#ifdef NO_OPERATION_ID
    :: onHand > 0 -> onHand--; sold++; sales[me]++
#else
    :: !isSold[me] && onHand > 0 -> onHand--; sold++; isSold[me] = true; sales[me]++
#endif
    :: else
    fi;
    assert(isConserved);
    assert(sales[me] <= 1)
  }
}

inline reserve(me) {
  atomic {
    if
    :: reservation[me] == none && onHand > 0 -> onHand--; reserved++; reservation[me] = open
    :: else
    fi;
    assert(isConserved)
  }
}

inline confirm(me) {
  atomic {
    if
    :: reservation[me] == open -> reserved--; sold++; reservation[me] = confirmed
    :: else
    fi;
    assert(isConserved)
  }
}

inline giveBack(me) {
  atomic {
    if
    :: reservation[me] == open -> reserved--; onHand++; reservation[me] = closed
    :: else
    fi;
    assert(isConserved)
  }
}

proctype Client(byte me) {
  /* Each call may be repeated at any time: its answer may be lost. */
  if
  :: true -> do :: true -> sell(me) :: break od
  :: true ->
    do
    :: true -> reserve(me)
    :: true -> confirm(me)
    :: true -> giveBack(me)
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
      if
#ifdef EXPIRE_ANY
      :: reservation[i] == open || reservation[i] == confirmed ->
        if :: reserved > 0 -> reserved-- :: else fi;
        onHand++; reservation[i] = closed
#else
      :: reservation[i] == open -> reserved--; onHand++; reservation[i] = closed
#endif
      :: else
      fi;
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
