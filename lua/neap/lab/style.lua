--- How reports and plots look: CSS.  Colours are told apart by those who see few of them, and in
--- grey by what else differs: the dashes of lines, the heights of states.

return [[

:root {
  color-scheme: light dark;
  --back: #fff; --ink: #1b1f24; --soft: #555e68; --grid: #e1e5ea; --frame: #b9c0c8;
  --shade: #f1e9dc; --note: #fff6df; --edge: #c98a00; --chosen: #e8f2fb;
  --s1: #0067a8; --s2: #c44e00; --s3: #007a5a; --s4: #9a3f96; --s5: #7a6400; --s6: #44505c;
  --closed: #8db9dc; --half: #e69f00; --open: #c23b00; --other: #8a94a0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14181d; --ink: #e4e8ec; --soft: #a3adb8; --grid: #2a313a; --frame: #56616d;
    --shade: #2e2a20; --note: #33290f; --edge: #d9a52b; --chosen: #17324a;
    --s1: #62b6f0; --s2: #ff9a52; --s3: #3fcfa2; --s4: #e395de; --s5: #e2cf55; --s6: #c3ccd5;
    --closed: #3d6f96; --half: #f0b030; --open: #ff6a3d; --other: #77828e;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; overflow-wrap: anywhere; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; }
.lead { font-size: 1.1rem; }
.note { background: var(--note); border-left: 4px solid var(--edge); padding: .5rem .75rem; }
pre {
  overflow-x: auto; border: 1px solid var(--grid); padding: .6rem .8rem; font-size: 13px;
  line-height: 1.4;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0; font-size: 14px; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td {
  padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--grid); text-align: left;
  vertical-align: top;
}
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.chosen td { background: var(--chosen); font-weight: 600; }
figure { margin: 1.2rem 0 1.6rem; }
figcaption { max-width: 46rem; margin-bottom: .4rem; }
figcaption b { display: block; }
figcaption span { color: var(--soft); }
details { margin: .3rem 0; }
summary { cursor: pointer; color: var(--soft); }
.plot { overflow-x: auto; }
.plot > svg { display: block; width: 100%; min-width: 40rem; height: auto; }
.zoom { display: flex; gap: .3rem; margin: .3rem 0 0; align-items: center; }
.zoom button {
  font: inherit; font-size: 13px; min-width: 2.2rem; padding: .15rem .5rem; color: var(--ink);
  background: var(--back); border: 1px solid var(--frame); border-radius: 4px; cursor: pointer;
}
.zoom button:disabled { color: var(--soft); opacity: .5; cursor: default; }
.zoom span { color: var(--soft); font-size: 13px; margin-left: .4rem; }
svg text { font-size: 11.5px; fill: var(--soft); }
svg text.label { fill: var(--ink); font-weight: 600; font-size: 12px; }
svg text.name { fill: var(--ink); }
svg .halo { paint-order: stroke; stroke: var(--back); stroke-width: 3px; stroke-linejoin: round; }
svg .grid { stroke: var(--grid); stroke-width: 1; fill: none; }
svg .frame { stroke: var(--frame); stroke-width: 1; fill: none; }
svg .shade { fill: var(--shade); }
svg .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; fill: none; }
svg .level { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 1 3; fill: none; }
svg .picked { fill: var(--s1); opacity: .2; }
svg .l { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg .l, svg .level, svg .mark, svg .grid { vector-effect: non-scaling-stroke; }
svg .s1 { stroke: var(--s1); } svg .s2 { stroke: var(--s2); stroke-dasharray: 7 3; }
svg .s3 { stroke: var(--s3); stroke-dasharray: 2 2; }
svg .s4 { stroke: var(--s4); stroke-dasharray: 10 3 2 3; }
svg .s5 { stroke: var(--s5); stroke-dasharray: 4 4; }
svg .s6 { stroke: var(--s6); stroke-dasharray: 1 4; }
svg .a { stroke: none; opacity: .45; }
svg .a.s1 { fill: var(--s1); } svg .a.s2 { fill: var(--s2); } svg .a.s3 { fill: var(--s3); }
svg .a.s4 { fill: var(--s4); } svg .a.s5 { fill: var(--s5); } svg .a.s6 { fill: var(--s6); }
svg .closed { fill: var(--closed); } svg .half_open { fill: var(--half); }
svg .open { fill: var(--open); } svg .other { fill: var(--other); }
svg .dot { fill: var(--back); stroke: var(--soft); stroke-width: 1.2; }
svg .dot.front { fill: var(--s1); stroke: var(--s1); }
svg .ring { fill: none; stroke: var(--s2); stroke-width: 2.5; }
@media print {
  :root {
    color-scheme: light;
    --back: #fff; --ink: #000; --soft: #333; --grid: #ddd; --frame: #888;
    --shade: #eee; --note: #fff; --edge: #000; --chosen: #eee;
    --s1: #0067a8; --s2: #c44e00; --s3: #007a5a; --s4: #9a3f96; --s5: #7a6400; --s6: #44505c;
    --closed: #a8cbe6; --half: #e69f00; --open: #c23b00; --other: #8a94a0;
  }
  figure, table, .note { break-inside: avoid; }
  h2 { break-after: avoid; }
  .zoom, details:not([open]) { display: none; }
}
]]
