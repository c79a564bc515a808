// Search in the browser: every word must begin a word of a section. The index comes with the first key.
const up = document.currentScript.dataset.up;
const form = document.querySelector('form');
const input = document.getElementById('search');
const results = document.getElementById('results');
let sections;

function load() {
  return sections ??= new Promise((done) => {
    const script = document.createElement('script');
    script.src = up + 'index.js';
    script.onload = () => done(pages.map((s) => ({ ...s, names: (s.h + ' ' + s.p).toLowerCase(), text: s.t.toLowerCase() })));
    document.head.append(script);
  });
}

function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const begins = new RegExp('(^|[^a-z0-9])' + word.replace(/[^a-z0-9]/g, '\\$&'), 'g');
    const named = section.h.toLowerCase().match(begins) ? 20 : section.names.match(begins) ? 8 : 0;
    const found = named + Math.min(5, section.text.match(begins)?.length ?? 0);
    if (!found) return 0;
    sum += found;
  }
  return sum;
}

async function search() {
  const all = await load();
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.map((s) => [score(s, words), s]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, 20);
  results.hidden = !words.length;
  const list = document.createElement(found.length ? 'ol' : 'p');
  if (!found.length) list.textContent = 'Nothing found.';
  for (const [, s] of found) {
    const link = document.createElement('a');
    link.href = up + s.u;
    link.textContent = s.h === s.p ? s.p : s.p + ': ' + s.h;
    const item = document.createElement('li');
    item.append(link);
    list.append(item);
  }
  results.replaceChildren(list);
}

form.hidden = false;
input.addEventListener('input', search);
form.addEventListener('submit', (e) => {
  e.preventDefault();
  results.querySelector('a')?.click();
});
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && e.target === document.body) { e.preventDefault(); input.focus(); }
  if (e.key === 'Escape') { results.hidden = true; }
});
