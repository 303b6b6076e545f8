/** The script of the report: the scrubber, and the switch between the strategies. It contacts nobody. */

/**
 * @typedef {{ readonly at: number, readonly worker: number, readonly text: string, readonly isKey: boolean }} Frame
 * @typedef {{ readonly headline: string, readonly why: string, readonly tone: string, readonly scale: number, readonly start: number, readonly frames: readonly Frame[] }} Replay
 */

/** @type {<T extends Element>(selector: string, kind: new () => T) => T} */
const find = (selector, kind) => {
  const found = document.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`the page has no ${selector}`);
  return found;
};

/** @type {readonly Replay[]} */
const replays = JSON.parse(find("#data", HTMLScriptElement).text);
const headline = find("#headline", HTMLElement);
const why = find("#why", HTMLElement);
const sentence = find("#sentence", HTMLElement);
const scrubber = find("#scrubber", HTMLInputElement);
const playButton = find("#play", HTMLButtonElement);
const moments = find("#moments", HTMLElement);
const sections = [...document.querySelectorAll(".replay")];
const choices = [...document.querySelectorAll("input[name=strategy]")];

/** How long the player shows a moment, in milliseconds. */
const MOMENT = 2_500;

let chosen = 0;
let player = 0;

function show() {
  const { frames, scale } = /** @type {Replay} */ (replays[chosen]);
  const index = Number(scrubber.value);
  const frame = frames[index];
  const section = sections[chosen];
  if (!frame || !section) return;
  const x = frame.at * scale;
  sentence.innerHTML = "";
  const time = document.createElement("b");
  time.textContent = `${(frame.at / 1_000).toFixed(2)} s `;
  sentence.append(time, frame.text);
  sentence.className = frame.isKey ? "frame key" : "frame";
  scrubber.setAttribute(
    "aria-valuetext",
    `${(frame.at / 1_000).toFixed(2)} seconds: ${frame.text}`,
  );
  const cursor = section.querySelector(".cursor");
  cursor?.setAttribute("x1", String(x));
  cursor?.setAttribute("x2", String(x));
  const scroll = section.querySelector(".scroll");
  if (scroll) scroll.scrollLeft = x - scroll.clientWidth / 2;
}

/** @param {number} index */
function choose(index) {
  chosen = index;
  const replay = /** @type {Replay} */ (replays[index]);
  headline.textContent = replay.headline;
  headline.className = replay.tone;
  why.textContent = replay.why;
  for (const [i, section] of sections.entries()) section.toggleAttribute("hidden", i !== index);
  scrubber.max = String(Math.max(0, replay.frames.length - 1));
  scrubber.value = String(replay.start);
  moments.replaceChildren(...replay.frames.flatMap(toMoment));
  show();
}

/** @type {(frame: Frame, index: number) => readonly HTMLElement[]} */
function toMoment({ at, text, isKey }, index) {
  if (!isKey) return [];
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.textContent = `${(at / 1_000).toFixed(2)} s`;
  button.addEventListener("click", () => goTo(index));
  item.append(button, ` ${text}`);
  return [item];
}

/** @param {number} index */
function goTo(index) {
  scrubber.value = String(index);
  show();
}

/** Goes to the next decisive moment, or to the one before. @param {1 | -1} step */
function goOn(step) {
  const { frames } = /** @type {Replay} */ (replays[chosen]);
  for (let i = Number(scrubber.value) + step; i >= 0 && i < frames.length; i += step) {
    if (!frames[i]?.isKey) continue;
    goTo(i);
    return true;
  }
  return false;
}

function stop() {
  clearInterval(player);
  player = 0;
  playButton.textContent = "Play";
}

function play() {
  if (player !== 0) return stop();
  playButton.textContent = "Pause";
  player = setInterval(() => {
    if (!goOn(1)) stop();
  }, MOMENT);
}

scrubber.addEventListener("input", () => {
  stop();
  show();
});
find("#before", HTMLButtonElement).addEventListener("click", () => goOn(-1));
find("#next", HTMLButtonElement).addEventListener("click", () => goOn(1));
playButton.addEventListener("click", play);
for (const [i, choice] of choices.entries()) {
  choice.addEventListener("change", () => {
    stop();
    choose(i);
  });
}
choose(0);
