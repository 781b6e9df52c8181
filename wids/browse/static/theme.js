// Before the page is drawn: the colours that were chosen for this browser.
try {
  const theme = localStorage.getItem("wids-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // the browser keeps nothing, so the system's choice is shown
}
