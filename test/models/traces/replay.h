/*
 * Histories of real clients as paths of a model. Each call of a history takes effect by the model's rules, once, at any moment
 * after it was sent and before it was answered. A call without an answer may take effect at any later moment, or never.
 *
 * The file events.h has the events of several histories in the order of time. Here spin looks for a
 * violation of the last assertion: it means that there is a path. Otherwise the last line that the search prints is the
 * number of the event that the model does not allow.
 *
 * The model's file has before this one: `reset(start)`, `free(number)`, `isSucceeded(c)`, `isFailed(c)`, `observe()`, the process `Call(c)` and
 * the process `Others`, for what happens without a call.
 */

/* The number of the next event. */
int line;

inline forget(c) {
  call[c] = 0; token[c] = 0; value[c] = 0; units[c] = 0; id[c] = 0; reservedBy[c] = 0;
  isDone[c] = false; isAccepted[c] = false
}

init {
  byte i;
  atomic {
    run Others();
    for (i : 0 .. CALLS - 1) { run Call(i) }
    i = 0
  };
  do
  :: line == EVENTS -> break
  :: else ->
    atomic {
      c_code {
        now.nextStep = events[now.line].step; now.nextCall = events[now.line].call;
        now.nextToken = events[now.line].token; now.nextValue = events[now.line].value;
        now.nextUnits = events[now.line].units; now.nextId = events[now.line].id;
        now.nextReservedBy = events[now.line].reservedBy;
        now.timeAhead = events[now.line + 1].time; now.isOwnerAhead = (events[now.line + 1].step == OWNER);
        if (now.line > furthest) { furthest = now.line; printf("event %d\n", furthest); }
      };
      if
      :: nextStep == RESET ->
        reset(nextValue);
        for (i : 0 .. CALLS - 1) { forget(i) }
        i = 0
      :: nextStep == SUCCEED -> call[nextCall] != 0 && isSucceeded(nextCall) -> forget(nextCall)
      :: nextStep == FAIL -> call[nextCall] != 0 && isFailed(nextCall) -> forget(nextCall)
      :: nextStep == FORGET -> forget(nextCall)
      :: nextStep == FREE -> free(nextId)
      :: nextStep == OBSERVE || nextStep == OWNER || nextStep == GIVE_UP -> observe()
      :: nextStep > GIVE_UP ->
        call[nextCall] = nextStep; token[nextCall] = nextToken; value[nextCall] = nextValue;
        units[nextCall] = nextUnits; id[nextCall] = nextId; reservedBy[nextCall] = nextReservedBy
      fi;
      line++
    }
  od;
  assert(false)
}
