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

mtype = { parked, running, completed, cancelled };

mtype status = parked;
byte epoch;
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
  bool isUndoing;
  atomic {
    /* A running run may be claimed as well: its lease may have expired. */
    if
    :: !isEnded -> epoch++; mine = epoch; status = running; isUndoing = isCancelRequested
    :: else -> goto stale
    fi
  }
  if
  :: isUndoing ->
    if
    :: isStartRecorded || isDoneRecorded -> touch(mine, false)
    :: else
    fi;
    atomic { if :: isMine(mine) -> status = cancelled; assert(!hasEffect) :: else fi }
  :: !isUndoing && !isDoneRecorded ->
#ifndef UNDO_AFTER_ATTEMPT
    atomic { if :: isMine(mine) -> isStartRecorded = true :: else -> goto stale fi };
#endif
    touch(mine, true);
    atomic { if :: isMine(mine) -> isDoneRecorded = true :: else -> goto stale fi };
    goto finish
  :: else -> goto finish
  fi;
  goto stale;
finish:
  atomic {
    if
    :: isMine(mine) && !isCancelRequested ->
      assert(!isEnded);
      status = completed;
      assert(hasEffect)
    :: isMine(mine) && isCancelRequested -> status = parked
    :: else
    fi
  }
stale:
  skip
}

active proctype Canceller() {
  if
  :: atomic { !isEnded -> isCancelRequested = true }
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
