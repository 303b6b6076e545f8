/*
 * The validity of a lock in time. A client claims a lock, the store grants it for TTL from the moment at which the request
 * arrives, and the answer comes back later. The client renews once in the same way.
 *
 * The property: while the client believes that the lock is valid, the store has not let it expire.
 *
 * Left out: the rates of the clocks, which the margin of a lease covers, and clocks that jump.
 *
 * Mutant: FROM_ANSWER (validity counts from the answer, not from the request).
 */
#define TTL 3
#define LAST 10
#ifndef NUMBER
#define NUMBER byte
#endif

NUMBER now;
NUMBER expiresAt;   /* at the store; the lock is held while now < expiresAt */
NUMBER validUntil;  /* in the client's view */

#define isBelieved (now < validUntil)
#define isExpired (now >= expiresAt)

inline pass(time) {
  atomic { now = time; assert(!(isBelieved && isExpired)) }
}

inline grant(until) {
  expiresAt = until
}

inline believe(until) {
  atomic { validUntil = until; assert(!(isBelieved && isExpired)) }
}

/* traces/validity.pml has clients of its own. */
#ifndef TRACE
bool isHeld = true;

active proctype Clock() {
  do
  :: atomic { now < LAST -> pass(now + 1) }
  :: now == LAST -> break
  od
}

active proctype Client() {
  byte sentAt, round;
  do
  :: round < 2 ->
    sentAt = now;
    /* The request arrives. A renewal of an expired lock is refused. */
    atomic {
      if
      :: round == 0 || !isExpired -> grant(now + TTL)
      :: else -> isHeld = false
      fi
    }
    if
    :: !isHeld -> break
    :: else
    fi;
    /* The answer arrives. */
#ifdef FROM_ANSWER
    believe(now + TTL);
#else
    believe(sentAt + TTL);
#endif
    round++
  :: else -> break
  od
}
#endif
