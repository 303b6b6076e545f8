/*
 * Clients with a lock sell from one resource. The lock may expire at any moment, so several clients may believe that they
 * hold it.
 *
 * A sale reads the stock and writes the read value less one. The property: no sale overwrites another one.
 *
 * Left out: the lock's own correctness, several resources, and the generation of a fence.
 *
 * Mutants: LOCK_ALONE (the resource checks no token), CHECK_AT_WRITE (the resource compares the token at the write, and
 * does not claim it before the read).
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef NUMBER
#define NUMBER byte
#endif
#define SALES 2  /* per client */

NUMBER holder;   /* of the lock; 0 if it is free */
NUMBER lastToken;
NUMBER claimed;  /* the highest token at the resource */
NUMBER stock = CLIENTS * SALES;

inline acquire(me, token) {
  atomic { holder == 0 -> holder = me; lastToken++; token = lastToken }
}

inline release(me) {
  atomic { if :: holder == me -> holder = 0 :: else fi }
}

inline claim(token, isAccepted) {
#if defined(LOCK_ALONE) || defined(CHECK_AT_WRITE)
  isAccepted = true
#else
  atomic {
    isAccepted = (token >= claimed);
    if :: isAccepted -> claimed = token :: else fi
  }
#endif
}

inline write(token, seen) {
  atomic {
#ifdef LOCK_ALONE
    assert(stock == seen); stock = seen - 1
#else
    if
    :: token >= claimed -> assert(stock == seen); stock = seen - 1; claimed = token
    :: else
    fi
#endif
  }
}

proctype Expiry() {
end:
  do
  :: atomic { holder != 0 -> holder = 0 }
  od
}

/* traces/fence.pml has clients of its own. */
#ifndef TRACE
proctype Client() {
  byte token, seen, sales;
  bool isAccepted;
  do
  :: sales < SALES ->
    acquire(_pid, token);
    claim(token, isAccepted);
    if
    :: isAccepted -> seen = stock; write(token, seen)
    :: else
    fi;
    release(_pid);
    token = 0; seen = 0;
    sales++
  :: else -> break
  od
}

init {
  byte i;
  atomic {
    run Expiry();
    for (i : 1 .. CLIENTS) { run Client() }
  }
}
#endif
