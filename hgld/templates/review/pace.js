// How long the open values will take at the pace of this session.

const ASSUMED_SECONDS = 10; // a value, until the person has a pace of their own
const FEWEST_DECIDED = 5; // decisions that make a pace
const PAUSE_SECONDS = 120; // a longer gap is a pause, not a decision

const pace = { seconds: 0, last: performance.now(), before: 0 };

function measurePace() {
  const gap = (performance.now() - pace.last) / 1000;
  pace.last += 1000 * gap;
  if (gap <= PAUSE_SECONDS) pace.seconds += gap;
}

function leftWords() {
  const open = rows.filter((row) => !decides(row)).length;
  if (!open) return "Every value is decided.";
  const made = steps.length - pace.before; // a block counts once: what it leaves is decided singly
  const own = made >= FEWEST_DECIDED;
  const each = own ? pace.seconds / made : ASSUMED_SECONDS;
  const minutes = Math.max(1, Math.round((open * each) / 60));
  const seconds = each < 10 ? each.toFixed(1).replace(/\.0$/, "") : Math.round(each);
  const time = minutes < 120 ? counted(minutes, "minute") : counted(Math.round(minutes / 60), "hour");
  return `${counted(open, "value")} open: about ${time} `
    + `at ${seconds} s each (${own ? "your pace" : "assumed"})`;
}
