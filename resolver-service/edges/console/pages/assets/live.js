// Keeps a page as it is now: the server says when its state has another mark than the page, and htmx
// fetches the page again and changes what differs. While nothing is heard, it shows how old the page is.

const fresh = document.getElementById('fresh');
const refetchAfter = 10_000; // ms; ages on the page grow, and calls are counted by ten seconds
const silentAfter = 12_000; // ms; the server speaks each 5 s
let heard = Date.now();
let trouble = '';
let asked = 0;

const shown = () => document.getElementById('mark');
const seconds = (ms) => (ms < 60_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`);

// A page that has what somebody is choosing or writing is left alone.
const busy = () => {
  const at = document.activeElement;
  return at && shown()?.parentElement?.contains(at) && at.matches('input, select, textarea');
};

function say() {
  const age = Date.now() - Number(shown()?.dataset.at ?? fresh.dataset.at);
  const lost = trouble || Date.now() - heard > silentAfter;
  fresh.classList.toggle('lost', Boolean(lost));
  const text = lost ? `${trouble || 'the console does not answer'}; what you see is ${seconds(age)} old` : 'live';
  if (fresh.textContent !== text) fresh.textContent = text;
}

function refetch() {
  if (document.hidden || busy() || Date.now() - asked < 500) return;
  asked = Date.now();
  document.getElementById('live')?.dispatchEvent(new CustomEvent('isthmus:changed'));
}

const source = new EventSource('/live');
source.addEventListener('state', (event) => {
  heard = Date.now();
  const state = JSON.parse(event.data);
  trouble = state.away ?? '';
  const age = Date.now() - Number(shown()?.dataset.at ?? 0);
  if (!trouble && (state.mark !== shown()?.dataset.mark || age > refetchAfter)) refetch();
  say();
});
source.addEventListener('error', () => {
  if (source.readyState === EventSource.CLOSED) trouble = 'your session has ended; reload the page'; // no retry comes
  say();
});
setInterval(say, 1000);
addEventListener('pagehide', () => source.close());
