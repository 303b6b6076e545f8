/*
 * Claims of unknown outcome and their withdrawal. Requests and answers are lost, and requests of one client arrive in any
 * order: a withdrawal may arrive before its claim.
 *
 * A client without an answer withdraws the claim and gives up. The property: a client that believes that it holds the lock
 * holds it at the store.
 *
 * Left out: renewal, waiting, and the time: the store lets a lock expire only after the belief of its holder has ended
 * (see validity.pml).
 *
 * Mutants: WITHDRAW_ANY (a withdrawal does not compare the owner), BELIEVE_UNKNOWN (a client without an answer holds the
 * lock).
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef NUMBER
#define NUMBER byte
#endif

NUMBER owner;   /* at the store; 0 if the lock is free */

#define isFree (owner == 0)

inline claimLock(me) {
  owner = me
}

inline withdraw(me) {
  if
#ifdef WITHDRAW_ANY
  :: true -> owner = 0
#else
  :: owner == me -> owner = 0
  :: else
#endif
  fi
}

/* traces/withdrawal.pml has clients and a store of its own. */
#ifndef TRACE
mtype = { nothing, sent, applied, refused, lost };

mtype claim[CLIENTS + 1] = nothing;
mtype withdrawal[CLIENTS + 1] = nothing;
bool believes[CLIENTS + 1];

/* Applies requests in any order, long after they were sent. Drops some of them. */
active proctype Store() {
  byte i;
end:
  do
  :: atomic {
      select(i : 1 .. CLIENTS);
      if
      :: claim[i] == sent && isFree -> claimLock(i); claim[i] = applied
      :: claim[i] == sent && !isFree -> claim[i] = refused
      :: claim[i] == sent -> claim[i] = lost
      :: withdrawal[i] == sent -> withdraw(i); withdrawal[i] = applied
      :: withdrawal[i] == sent -> withdrawal[i] = lost
      :: owner == i && !believes[i] && claim[i] == applied -> owner = 0  /* Expires. */
      :: else
      fi;
      i = 0
    }
    assert(!believes[1] || owner == 1);
    assert(!believes[2] || owner == 2);
    assert(!believes[CLIENTS] || owner == CLIENTS)
  od
}

proctype Client(byte me) {
  claim[me] = sent;
  if
  :: atomic { claim[me] == applied && owner == me -> believes[me] = true }
  :: claim[me] == refused -> goto done
  :: true ->  /* No answer in time. */
#ifdef BELIEVE_UNKNOWN
    believes[me] = true
#else
    withdrawal[me] = sent;
    goto done
#endif
  fi;
  believes[me] = false;
  withdrawal[me] = sent;  /* A release. */
done:
  skip
}

init {
  byte i;
  atomic { for (i : 1 .. CLIENTS) { run Client(i) } }
}
#endif
