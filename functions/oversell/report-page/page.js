/** The script of the report: the scrubber, and the switch between the strategies. It contacts nobody. */

/**
 * @typedef {readonly [at: number, text: string, message: number, isKey?: 1]} Frame The message is -1 if there is none.
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
const messages = sections.map((section) => [...section.querySelectorAll("path.message")]);
const choices = [...document.querySelectorAll("input[name=strategy]")];

/** How long the player shows a moment, in milliseconds. */
const MOMENT = 2_500;

/** What a message says, if its type does not say it. @type {Readonly<Record<string, string>>} */
const SAYS = {
  asks: "requests the lock",
  releases: "releases the lock",
  claimed: "claims the stock",
  reads: "reads the stock",
  takes: "subtracts a unit",
  replayed: "repeats a sale",
  "sold-out": "finds nothing left",
};

/** The width of the longest text of a message, in pixels. */
const LONGEST_TEXT = 220;

let chosen = 0;
let player = 0;

function show() {
  const { frames, scale } = /** @type {Replay} */ (replays[chosen]);
  const index = Number(scrubber.value);
  const frame = frames[index];
  const section = sections[chosen];
  if (!frame || !section) return;
  const [at, text] = frame;
  const x = at * scale;
  sentence.innerHTML = "";
  const time = document.createElement("b");
  time.textContent = `${(at / 1_000).toFixed(2)} s `;
  sentence.append(time, text);
  sentence.className = frame[3] ? "frame key" : "frame";
  scrubber.setAttribute("aria-valuetext", `${(at / 1_000).toFixed(2)} seconds: ${text}`);
  const cursor = section.querySelector(".cursor");
  cursor?.setAttribute("x1", String(x));
  cursor?.setAttribute("x2", String(x));
  const scroll = section.querySelector(".scroll");
  if (scroll) scroll.scrollLeft = x - scroll.clientWidth / 2;
  tell();
}

/** Shows what a message says: the one under the pointer, or else that of the moment. @param {Element} [pointed] */
function tell(pointed) {
  const message = replays[chosen]?.frames[Number(scrubber.value)]?.[2] ?? -1;
  const told = pointed ?? messages[chosen]?.[message];
  for (const one of messages[chosen] ?? []) one.classList.toggle("told", one === told);
  const label = sections[chosen]?.querySelector(".told-text");
  if (!label) return;
  label.textContent = "";
  // A refused message has a text of its own.
  if (!(told instanceof SVGPathElement) || told.matches(".refused")) return;
  const { x, y } = told.getPointAtLength(told.getTotalLength() / 2);
  const isLate = x > (told.ownerSVGElement?.clientWidth ?? 0) - LONGEST_TEXT;
  const type = told.classList[1] ?? "";
  const { fence } = told.dataset;
  const says = SAYS[type] ?? type;
  const carried = fence ? `fence ${fence}` : "no fence";
  label.textContent = type === "asks" ? says : `${carried}: ${says}`;
  label.setAttribute("x", String(isLate ? x - 8 : x + 8));
  label.setAttribute("y", String(y));
  label.classList.toggle("end", isLate);
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
function toMoment([at, text, , isKey], index) {
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
    if (!frames[i]?.[3]) continue;
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
for (const section of sections) {
  section.addEventListener("pointerover", ({ target }) => {
    if (target instanceof Element && target.matches(".message")) tell(target);
  });
  section.addEventListener("pointerout", () => tell());
}
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
