/*
 * Tokens of a lock on three independent masters. Each master counts its own tokens, its lock may expire at any moment, and
 * claims of several clients overlap. A client with a quorum of grants takes the highest of their tokens, and raises the
 * other masters of its quorum to it before the lock counts.
 *
 * The properties: no two clients get the same token, and a client that begins after another one has got its token gets a
 * higher one.
 *
 * Left out: masters that lose their tokens, generations, and lost answers (a master without an answer grants nothing). No history is
 * replayed: what happens inside the masters is not recorded.
 *
 * Mutants: NO_RAISE (the highest token is not raised on a quorum), RAISE_ANY (a master raises its token although the
 * client has lost the lock there).
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#define MASTERS 3
#define QUORUM 2

byte owner[MASTERS];
byte token[MASTERS];
byte highestGiven;
bool isGiven[16];  /* by token */

proctype Client() {
  byte m, granted[MASTERS], grants, highest, agreed, before;
  before = highestGiven;
  for (m : 0 .. MASTERS - 1) {
    atomic {
      if
      :: owner[m] == 0 -> owner[m] = _pid; token[m]++; granted[m] = token[m]; grants++
      :: true  /* Held by another client, or no answer. */
      fi;
      if :: granted[m] > highest -> highest = granted[m] :: else fi
    }
  }
  if
  :: grants >= QUORUM ->
    for (m : 0 .. MASTERS - 1) {
      atomic {
        if
#ifdef NO_RAISE
        :: granted[m] > 0 -> agreed++
#else
        :: granted[m] == highest -> agreed++
#ifdef RAISE_ANY
        :: granted[m] > 0 && granted[m] < highest ->
          token[m] = highest;
          agreed++
#else
        :: granted[m] > 0 && granted[m] < highest && owner[m] == _pid ->
          if :: token[m] < highest -> token[m] = highest :: else fi;
          agreed++
#endif
#endif
        :: else
        fi
      }
    }
  :: else
  fi;
  atomic {
    if
    :: agreed >= QUORUM ->
      assert(highest > before);
      assert(!isGiven[highest]);
      isGiven[highest] = true;
      if :: highest > highestGiven -> highestGiven = highest :: else fi
    :: else
    fi
  }
}

proctype Expiry() {
end:
  do
  :: atomic { owner[0] != 0 -> owner[0] = 0 }
  :: atomic { owner[1] != 0 -> owner[1] = 0 }
  :: atomic { owner[2] != 0 -> owner[2] = 0 }
  od
}

init {
  byte i;
  atomic {
    /* Masters that were down for a while are behind. */
    token[0] = 2;
    run Expiry();
    for (i : 1 .. CLIENTS) { run Client() }
  }
}
