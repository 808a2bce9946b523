// Light, dark, or what the system prefers; the choice is remembered in this browser.

import {h, replace} from './dom.js';

const THEMES = {auto: 'System theme', light: 'Light theme', dark: 'Dark theme'};

/** The button that goes through the themes; making it applies the remembered one. */
export function themeButton() {
  const names = Object.keys(THEMES);
  let now = read() ?? 'auto';
  const button = h('button', {type: 'button', class: 'theme', onclick: () => {
    now = names[(names.indexOf(now) + 1) % names.length];
    apply(true);
  }});
  function apply(chosen) {
    if (now === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = now;
    button.setAttribute('aria-label', `${THEMES[now]}: change`);
    button.title = THEMES[now];
    replace(button, {auto: '◐', light: '☀', dark: '☾'}[now]);
    if (chosen) {
      try {
        localStorage.setItem('theme', now);
      } catch {
        // Private modes refuse storage: the choice then lasts for the page.
      }
      dispatchEvent(new Event('themechange'));
    }
  }
  apply(false);
  return button;
}

function read() {
  try {
    const stored = localStorage.getItem('theme');
    return Object.hasOwn(THEMES, stored ?? '') ? stored : null;
  } catch {
    return null;
  }
}
