/*
 * The queue of a lock on etcd and ZooKeeper. Each client creates an entry of its session, which gets the next revision. The client
 * with the lowest revision holds the lock. Another client watches the entry before its own, and reads the queue again when that
 * entry is gone. Clients leave the queue while they wait, and sessions expire.
 *
 * The properties: at most one client believes that it holds the lock, and no client waits for ever.
 *
 * Left out: lost answers of the creation (see withdrawal.pml), and the time: a session expires at the store only after its client
 * knows (see validity.pml). No history is replayed: the entries of the queue and the order of watch events are not recorded.
 *
 * Mutants: NO_REREAD (the end of the entry before gives the lock at once), READ_THEN_WATCH (the watch starts after the read, without its
 * revision: an entry that is gone in between is never reported).
 */
#define CLIENTS 3

byte lastRevision;
byte entry[CLIENTS + 1];  /* the revision of each client's entry; 0 if there is none */
byte believers;

/* Sets `client` to the owner of the entry before revision `mine`, or to 0. */
inline readQueue(mine, client) {
  d_step {
    client = 0; i = 1;
    do
    :: i <= CLIENTS ->
      if
      :: entry[i] != 0 && entry[i] < mine && (client == 0 || entry[i] > entry[client]) -> client = i
      :: else
      fi;
      i++
    :: else -> break
    od;
    i = 0
  }
}

proctype Client(byte me) {
  byte i, before, watched;
  atomic { lastRevision++; entry[me] = lastRevision }
  do
  :: true ->
#ifdef READ_THEN_WATCH
    readQueue(entry[me], before);
    if :: before == 0 -> break :: else fi;
    /* The watch reports a deletion from now on. */
    if
    :: entry[before] != 0 -> watched = entry[before]; entry[before] != watched
    :: entry[before] == 0 -> false
    fi;
#else
    /* The read tells a revision, and the watch begins there. */
    atomic {
      readQueue(entry[me], before);
      if :: before == 0 -> break :: else -> watched = entry[before] fi
    };
    if
    :: entry[before] != watched
    :: entry[me] = 0; goto gone  /* The client gives up, or its session expires. */
    fi;
#endif
    before = 0; watched = 0;
#ifdef NO_REREAD
    break
#endif
  od;
  believers++;
  assert(believers == 1);
  believers--;
  entry[me] = 0;
gone:
  skip
}

init {
  byte i;
  atomic { for (i : 1 .. CLIENTS) { run Client(i) } }
}
