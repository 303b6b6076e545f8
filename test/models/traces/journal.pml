/*
 * Histories of runs as paths of journal.pml; replay.h says how.
 *
 * Epochs are numbered 2, 4, 6 and so on. Claims that nobody was told about have the epochs in between, and happen at any moment: a
 * request may arrive after its call has ended, and claim a run whose lease has expired. So a holder may be refused at any moment,
 * but nobody is accepted after a later claim. Effects are left out.
 */
#define TRACE
#define NUMBER int
#include "journal.pml"
#include "calls.h"

#define numberOf(c) (2 * token[c])

#define isSucceeded(c) (isDone[c] && isAccepted[c])
/* The end of a run, and the end of a claim, are for ever. A park or an end may have succeeded before it was refused. */
#define isFailed(c) (call[c] == CLAIM_RUN || call[c] == CANCEL_RUN -> isEnded : !isMine(numberOf(c)))
inline observe() { skip }

inline free(number) { skip }

inline reset(start) {
  status = parked; epoch = 0; isCancelRequested = false; isStartRecorded = false; isDoneRecorded = false
}

proctype Call(byte me) {
  int got;
  do
  :: atomic {
      isSent(me, CLAIM_RUN) && epoch < numberOf(me) ->
      epoch = numberOf(me) - 1; claimRun(got, isAccepted[me]); isDone[me] = true; got = 0
    }
  :: atomic { isSent(me, RECORD) -> record(numberOf(me), isDoneRecorded, isAccepted[me]); isDone[me] = true }
  :: atomic { isSent(me, PARK) -> park(numberOf(me), isAccepted[me]); isDone[me] = true }
  :: atomic { isSent(me, COMPLETE) -> complete(numberOf(me), isAccepted[me]); isDone[me] = true }
  :: atomic { isSent(me, END_RUN) -> fail(numberOf(me), isAccepted[me]); isDone[me] = true }
  :: atomic { isSent(me, CANCEL_RUN) -> requestCancel(isAccepted[me]); isDone[me] = true }
  od
}

proctype Others() {
  int got;
  bool isTaken;
end:
  do
  :: atomic { !isEnded -> epoch = epoch - epoch % 2; claimRun(got, isTaken); got = 0; isTaken = false }
  od
}

#include "replay.h"
