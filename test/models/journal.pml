/*
 * One run with one step that has an undo. Processes claim the run, execute it, and die or freeze at any moment. A
 * cancellation arrives at any moment. The step's resource compares the fence of the step's lock, and takes an effect or an undo
 * of an earlier holder no more.
 *
 * A process claims the run when no other one has its lease, or after the lease expired. Each claim raises the epoch, and
 * the journal refuses records of an earlier epoch. The order of fences is that of the epochs.
 *
 * The properties: a completed run has its effect once, a cancelled run has none, and nothing changes after the end.
 *
 * Left out: several steps, retries, and effects whose answer is lost (they are as if the process died after them).
 *
 * Mutants: NO_EPOCH (the journal takes records of any epoch), UNDO_AFTER_ATTEMPT (the start of a step is not recorded before its
 * first attempt), NO_FENCE (the resource takes what comes late).
 */
#define PROCESSES 3
#ifndef NUMBER
#define NUMBER byte
#endif

mtype = { parked, running, completed, cancelled };

mtype status = parked;
NUMBER epoch;
bool isCancelRequested;
bool isStartRecorded;
bool isDoneRecorded;
byte fence;       /* the highest at the resource */
bool hasEffect;

#define isEnded (status == completed || status == cancelled)

#ifdef NO_EPOCH
#define isMine(e) (epoch >= e)
#else
#define isMine(e) (epoch == e && status == running)
#endif

inline claimRun(mine, isAccepted) {
  atomic {
    isAccepted = !isEnded;
    /* A running run may be claimed as well: its lease may have expired. */
    if :: isAccepted -> epoch++; mine = epoch; status = running :: else fi
  }
}

inline record(mine, isRecorded, isAccepted) {
  atomic { isAccepted = isMine(mine); if :: isAccepted -> isRecorded = true :: else fi }
}

inline park(mine, isAccepted) {
  atomic { isAccepted = isMine(mine); if :: isAccepted -> status = parked :: else fi }
}

/* The run is parked instead if its cancellation was requested. */
inline complete(mine, isAccepted) {
  atomic {
    isAccepted = isMine(mine) && !isCancelRequested;
    if
    :: isAccepted -> assert(!isEnded); status = completed
    :: isMine(mine) && isCancelRequested -> status = parked
    :: else
    fi
  }
}

inline fail(mine, isAccepted) {
  atomic { isAccepted = isMine(mine); if :: isAccepted -> status = cancelled :: else fi }
}

inline requestCancel(isAccepted) {
  atomic { isAccepted = !isEnded; if :: isAccepted -> isCancelRequested = true :: else fi }
}

/* traces/journal.pml has processes of its own. */
#ifndef TRACE
inline touch(mine, value) {
  atomic {
#ifdef NO_FENCE
    hasEffect = value
#else
    if
    :: mine >= fence -> fence = mine; assert(!isEnded || hasEffect == value); hasEffect = value
    :: else -> goto stale
    fi
#endif
  }
}

proctype Process() {
  byte mine;
  bool isUndoing, isAccepted;
  atomic {
    claimRun(mine, isAccepted);
    if :: isAccepted -> isUndoing = isCancelRequested :: else -> goto stale fi
  }
  if
  :: isUndoing ->
    if
    :: isStartRecorded || isDoneRecorded -> touch(mine, false)
    :: else
    fi;
    atomic { fail(mine, isAccepted); assert(!isAccepted || !hasEffect) }
  :: !isUndoing && !isDoneRecorded ->
#ifndef UNDO_AFTER_ATTEMPT
    atomic { record(mine, isStartRecorded, isAccepted); if :: isAccepted :: else -> goto stale fi };
#endif
    touch(mine, true);
    atomic { record(mine, isDoneRecorded, isAccepted); if :: isAccepted :: else -> goto stale fi };
    goto finish
  :: else -> goto finish
  fi;
  goto stale;
finish:
  atomic { complete(mine, isAccepted); assert(!isAccepted || hasEffect) };
stale:
  skip
}

active proctype Canceller() {
  bool isAccepted;
  if
  :: requestCancel(isAccepted)
  :: true
  fi
}

/* A process that dies takes no further step; spin lets each one stop for ever at any statement. */
active proctype Observer() {
end:
  do
  :: isEnded -> atomic { assert(status == cancelled || hasEffect); assert(status == completed || !hasEffect) }
  od
}

init {
  byte i;
  atomic { for (i : 1 .. PROCESSES) { run Process() } }
}
#endif
