"""The report's page: plain HTML and CSS, nothing fetched from anywhere."""

from string import Template

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Antiphon: $run</title>
<style>
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --page: #ffffff; --card: #f6f8fa;
        --good: #1a7f37; --bad: #cf222e; --open: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #30363d; --page: #0d1117; --card: #161b22;
          --good: #3fb950; --bad: #f85149; --open: #d29922; } }
body { margin: 0 auto; max-width: 60rem; padding: 3rem 1.5rem 5rem; background: var(--page); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1rem; font-weight: 600; letter-spacing: .04em; color: var(--soft); margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 3rem 0 .4rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
.verdict { font-size: 2rem; line-height: 1.2; font-weight: 650; letter-spacing: -.015em; margin: 0 0 .6rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .32rem 1.6rem .32rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
th { color: var(--soft); font-size: .85rem; } .figures td + td, .figures th + th { text-align: right; }
.wide { overflow-x: auto; }
.status { font-weight: 600; margin-right: .8rem; }
.holds { color: var(--good); } .broken { color: var(--bad); } .unchecked, .incomplete { color: var(--open); }
.not-promised { color: var(--soft); font-weight: 400; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .7rem; margin-top: .8rem; }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.cards b { display: block; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.cards span { color: var(--soft); font-size: .82rem; }
figure { margin: .6rem 0 0; } svg { width: 100%; height: auto; color: var(--ink); }
svg text { font-family: inherit; }
</style>
<h1>ANTIPHON</h1>
$headline
<p class="soft">$facts</p>
$violations
<h2>Properties</h2>
<table>
$properties
</table>
<h2>Figures</h2>
$metrics
<h2>Deliveries over time</h2>
<p class="soft">Run $run: a lane per process, as high as the square root of what it delivers at that time.</p>
<figure>$timeline</figure>
<h2>Latency</h2>
<p class="soft">From the multicast to each delivery, by the number of groups that the message is addressed to.</p>
<figure>$latencies</figure>
<h2>A few messages in space and time</h2>
<p class="soft">An arrow is a frame between two processes. All processes deliver in the same order.</p>
<figure>$space_time</figure>
</html>
""")
