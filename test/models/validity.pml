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

byte now;
byte expiresAt;   /* at the store; the lock is held while now < expiresAt */
byte validUntil;  /* in the client's view */
bool isHeld = true;

active proctype Clock() {
  do
  :: atomic { now < LAST -> now++; assert(!(now < validUntil && now >= expiresAt)) }
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
      :: round == 0 || now < expiresAt -> expiresAt = now + TTL
      :: else -> isHeld = false
      fi
    }
    if
    :: !isHeld -> break
    :: else
    fi;
    /* The answer arrives. */
    atomic {
#ifdef FROM_ANSWER
      validUntil = now + TTL;
#else
      validUntil = sentAt + TTL;
#endif
      assert(!(now < validUntil && now >= expiresAt))
    }
    round++
  :: else -> break
  od
}
