// The key / goes to the search, as long as nobody writes.
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input, select, textarea')) return;
  event.preventDefault();
  document.getElementById('find')?.focus();
});
