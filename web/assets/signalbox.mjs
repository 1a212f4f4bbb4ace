// The pages work without this. It looks again, and adds keys, colours and the viewer's zone.
const $ = (q, of = document) => of.querySelector(q), $$ = (q, of = document) => [...of.querySelectorAll(q)]
const keep = { get: k => { try { return localStorage.getItem('signalbox-' + k) } catch { } }, set: (k, v) => { try { localStorage.setItem('signalbox-' + k, v) } catch { } } }
const root = document.documentElement, set = (e, o) => { for (const k in o) e.setAttribute(k, o[k]) }
const every = 5000, patience = 20000, still = !!$('[data-still]') // a page that costs much looks when it is asked, and only then
$$('[data-nojs]').forEach(e => { e.hidden = true })
$$(still ? '[data-js], [data-copy]' : '[data-js], [data-live], [data-copy]').forEach(e => { e.hidden = false })

// Colours: the server sets data-theme from a cookie, so nothing flashes.
const theme = v => {
  const set = v === 'light' || v === 'dark'
  set ? root.dataset.theme = v : delete root.dataset.theme
  document.cookie = `signalbox-theme=${set ? v : ''};max-age=${set ? 31536000 : 0};samesite=lax`
  $$('[name=theme]').forEach(e => { e.checked = e.value === (set ? v : 'system') })
}

// Times of day are written in UTC by the server; the exact one stays in the title.
let local = keep.get('zone') === 'local'
const zone = () => {
  $$('time[datetime]').forEach(e => {
    const was = e.dataset.utc ??= e.textContent
    if (/^\d\d:\d\d(:\d\d)?$/.test(was)) e.textContent = local ? new Date(e.dateTime).toTimeString().slice(0, was.length) : was
  })
  $$('[data-zone]').forEach(e => { e.textContent = ' ' + (local ? Intl.DateTimeFormat().resolvedOptions().timeZone : 'UTC') })
  $$('[name=zone]').forEach(e => { e.checked = (e.value === 'local') === local })
}
zone()

// Looking again. No look while the tab is hidden, or while somebody has paused it, and never two at a time.
const button = $('[data-live]'), more = $('[data-fresh]'), icon = $('link[rel=icon]')
let paused = keep.get('paused') === 'yes', wrong = '', looking, iconWas = icon.getAttribute('href'), waiting = new Map(), timer
const say = () => {
  set(button, { 'aria-pressed': !paused })
  $('span', button).textContent = paused ? 'paused' : document.hidden ? 'hidden' : wrong || 'live'
  set($('use', button), { href: paused ? '#i-play' : '#i-pause' })
  icon.href = document.hidden || paused || still ? icon.dataset.idle : iconWas // a page that doesn't look mustn't say that all is clear
}
const busy = e => e.matches(':hover') || e.contains(document.activeElement) || e.contains(getSelection().anchorNode) && !getSelection().isCollapsed || $('details[open]', e)
// put replaces a part by its new state, unless somebody is at it, or something below would move under their pointer.
const put = (old, now) => {
  if (old.isEqualNode(now)) return true
  if (busy(old)) return false
  const height = old.offsetHeight, pointer = $('main').matches(':hover') || $('main').contains(document.activeElement)
  old.replaceWith(now)
  if (pointer && now.offsetHeight !== height) { now.replaceWith(old); return false }
  return true
}
const take = all => {
  for (const [name, now] of waiting) {
    const old = $(`[data-part="${name}"]`)
    if (all) old.replaceWith(now)
    if (all || put(old, now)) waiting.delete(name)
  }
  more.hidden = !waiting.size
  zone()
}
const look = async () => {
  clearTimeout(timer)
  if (still || paused || document.hidden || looking) return
  looking = new AbortController()
  const late = setTimeout(() => looking?.abort(), patience)
  try {
    const reply = await fetch(location.href, { signal: looking.signal, credentials: 'same-origin' })
    const page = new DOMParser().parseFromString(await reply.text(), 'text/html')
    if (!$('[data-signalbox]', page)) throw new Error('another page')
    wrong = ''
    const parts = $$('[data-part]', page), here = $$('[data-part]').map(e => e.dataset.part)
    // A page that has come to be of another shape is loaded anew, once nobody is at it.
    if (parts.map(e => e.dataset.part).join() !== here.join() || $$('.banner', page).length !== $$('.banner').length) { if (!busy($('main'))) return location.reload(); more.hidden = false; more.dataset.fresh = 'all' } else {
      waiting = new Map(parts.map(e => [e.dataset.part, document.adoptNode(e)]))
      document.title = page.title
      iconWas = $('link[rel=icon]', page).getAttribute('href')
      take(false)
    }
  } catch { wrong = 'no answer' }
  clearTimeout(late)
  looking = undefined
  say()
  if (!paused && !document.hidden) timer = setTimeout(look, every)
}
const toggle = () => { paused = !paused; keep.set('paused', paused ? 'yes' : 'no'); say(); look() }
document.addEventListener('visibilitychange', () => { if (document.hidden) { clearTimeout(timer); looking?.abort() } say(); look() })
say()
if (!paused && !document.hidden) timer = setTimeout(look, every)

document.addEventListener('change', e => {
  if (e.target.name === 'theme') theme(e.target.value)
  if (e.target.name === 'zone') { local = e.target.value === 'local'; keep.set('zone', e.target.value); zone() }
})
document.addEventListener('click', async e => {
  const b = e.target.closest('button')
  if (b === button) toggle()
  if (b === more) more.dataset.fresh === 'all' ? location.reload() : take(true)
  if (b?.matches('[data-copy]')) { try { await navigator.clipboard.writeText(b.previousElementSibling.textContent); set(b, { 'aria-label': 'Copied' }) } catch { getSelection().selectAllChildren(b.previousElementSibling) } }
})

// Keys. A row is gone to by its link, so that focus and Enter work as everywhere.
const pages = { o: './', j: './jobs', w: './workers', c: './cron', g: './groups', l: './locks', d: './doctor', r: './redis' }
let g = 0
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, select, textarea')) return
  const rows = $$('[data-row]'), row = e.target.closest('[data-row]'), go = n => { const r = rows[Math.max(0, Math.min(rows.length - 1, n))]; ($('[data-open]', r) ?? $('a,button', r))?.focus() }
  if (g && Date.now() - g < 1500 && pages[e.key]) { location.href = pages[e.key]; return }
  g = 0
  if (e.key === '/') { e.preventDefault(); $('#q').focus() }
  else if (e.key === 'g') g = Date.now()
  else if (e.key === 'j' && rows.length) go(row ? rows.indexOf(row) + 1 : 0)
  else if (e.key === 'k' && rows.length) go(row ? rows.indexOf(row) - 1 : 0)
  else if (e.key === 'p' && !still) toggle()
  else if (e.key === 't') theme((root.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : '')) === 'dark' ? 'light' : 'dark')
  else if (e.key === '?') $('#help').togglePopover()
})
