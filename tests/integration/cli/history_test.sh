#!/usr/bin/env bash
# The history, from one build to the next, with the real programs: what a first build teaches is
# kept, planned with, shown, carried away and back, forgotten; a damaged file is set aside.
# Usage: history_test.sh BIN_DIR STANDIN
set -euo pipefail

bin=$1
standin=$2
tmp=$(mktemp -d /tmp/headroom-history-XXXXXX)
trap 'rm -rf "$tmp"' EXIT
export HEADROOM_RUNTIME_DIR=$tmp/run
unset HEADROOM_HISTORY HEADROOM_LANE MAKEFLAGS LD_PRELOAD STATE_DIRECTORY
history=$tmp/run/history.sqlite
mkdir "$tmp/build"
cd "$tmp/build"
cp "$standin" cc1plus

fail() {
  echo "FAILED: $*" >&2
  [[ ! -f $tmp/run/headroomd.log ]] || tail -n 20 "$tmp/run/headroomd.log" >&2
  exit 1
}
headroom() { "$bin/headroom" "$@"; }

# Four compilers at once; then what the daemon decided, while it still runs.
cat >build.sh <<'SH'
for i in 1 2 3 4; do
  ./cc1plus --curve 0:0,0.6:60M,1.2:60M -o "kernel_x_$i.o" "kernel_x_$i.cpp" &
done
wait
"$1/headroom" explain --json --last 500 >"$2"
SH
build() { headroom run "${@:2}" -- sh build.sh "$bin" "$tmp/$1.explain" 2>"$tmp/$1.err" || fail "build $1: $(cat "$tmp/$1.err")"; }
# A private daemon stores at its end, a moment after the build.
ended() {
  for _ in $(seq 400); do
    headroom status >/dev/null 2>&1 || return 0
    sleep 0.05
  done
  fail "the private daemon does not end"
}
# The whole row of a class, as JSON without blanks.
row() { headroom history show --json "$1" | tr -d ' \n'; }
builds() { row "$1" | sed 's/.*"builds":\([0-9]*\).*/\1/'; }

headroom history list 2>"$tmp/none" || fail "list of nothing"
grep -q 'nothing is known yet' "$tmp/none" || fail "no word on an empty history"

build first
ended
[[ $(stat -c %a "$history") == 600 ]] || fail "mode $(stat -c %a "$history")"
headroom history list | grep -q 'cc1plus: kernel_x_1.cpp$' || fail "not learned: $(headroom history list)"
[[ $(builds 'cc1plus: kernel_x_1.cpp') == 1 ]] || fail "builds: $(row 'cc1plus: kernel_x_1.cpp')"
peak=$(row 'cc1plus: kernel_x_1.cpp' | sed 's/.*"typical_peak_bytes":\([0-9]*\).*/\1/')
((peak > 45000000 && peak < 90000000)) || fail "a peak of $peak for 60M"

build second
ended
[[ $(builds 'cc1plus: kernel_x_1.cpp') == 2 ]] || fail "not added: $(row 'cc1plus: kernel_x_1.cpp')"
# 3: the same source, an earlier time. Only where compilers are held (the library was built).
if [[ -e $bin/../lib/libheadroom.so ]]; then
  grep -q '"admit"' "$tmp/first.explain" || fail "no compiler was held"
  first=$(grep '"admit"' "$tmp/first.explain" | head -n 1)
  second=$(grep '"admit"' "$tmp/second.explain" | head -n 1)
  [[ $first != *'"prediction_source":3'* ]] || fail "a first build that knows: $first"
  [[ $second == *'"prediction_source":3'* ]] || fail "a second build that knows nothing: $second"
fi

build third --no-history
ended
[[ $(builds 'cc1plus: kernel_x_1.cpp') == 2 ]] || fail "--no-history kept something"
if [[ -e $bin/../lib/libheadroom.so ]]; then
  third=$(grep '"admit"' "$tmp/third.explain" | head -n 1)
  [[ $third != *'"prediction_source":3'* ]] || fail "--no-history knew something: $third"
fi

headroom history export "$tmp/out.json"
[[ $(stat -c %a "$tmp/out.json") == 600 ]] || fail "mode of an export"
if headroom history export "$tmp/out.json" 2>/dev/null; then fail "export wrote over a file"; fi
headroom history forget 'cc1plus: kernel_x_1.cpp' | grep -q '^1 classes' || fail "forget one"
if headroom history show 'cc1plus: kernel_x_1.cpp' 2>"$tmp/err"; then fail "still there"; fi
grep -q "no class 'cc1plus: kernel_x_1.cpp'" "$tmp/err" || fail "$(cat "$tmp/err")"
headroom history forget --all >/dev/null
! headroom history list | grep -q cc1plus || fail "forget --all"
headroom history import "$tmp/out.json" >/dev/null
headroom history list | grep -q 'cc1plus: kernel_x_1.cpp$' || fail "import"
echo '{"headroom_history": 9}' >"$tmp/newer.json"
if headroom history import "$tmp/newer.json" 2>"$tmp/err"; then fail "a newer export"; fi
grep -q 'format 9' "$tmp/err" || fail "$(cat "$tmp/err")"
status=0
headroom history frobnicate 2>/dev/null || status=$?
((status == 2)) || fail "exit code $status for a wrong action"

rm -f "$history-wal" "$history-shm"
head -c 8192 /dev/urandom >"$history"
if headroom history list 2>/dev/null; then fail "list of garbage"; fi
build fourth
ended
[[ -f $history.damaged ]] || fail "not set aside"
(($(grep -c 'kept as' "$tmp/run/headroomd.log") == 1)) || fail "not one warning"
[[ $(builds 'cc1plus: kernel_x_1.cpp') == 1 ]] || fail "no new history"

# Where no history can be, the build goes on.
HEADROOM_HISTORY=/proc/nowhere/history.sqlite build fifth
ended
grep -q 'builds go on' "$tmp/run/headroomd.log" || fail "no warning"
echo "history: good"
