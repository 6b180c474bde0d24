#!/bin/bash
# Checks the models here, and that each mutant breaks the property it should. Needs spin and gcc; about ten minutes and 4 GB.
# usage: ./run.sh [-v] [lanes|floor]     -v prints every search; without it only what is wrong, and a summary
set -u
cd "$(dirname "$0")"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
verbose=; [ "${1:-}" = -v ] && { verbose=-v; shift; }
models=${1:-lanes floor}; searches=0; wrong=0

# build <defines>: makes $work/pan of $model
build() {
  cp "$model.pml" "$work"
  (cd "$work" && rm -f pan && spin $1 -a "$model.pml" >/dev/null && gcc -O2 -w -DCOLLAPSE -DNFAIR=4 -DVECTORSZ=2048 -DMEMLIM=8000 -o pan pan.c)
}

# search <property>: prints errors and states
search() {
  local options="-m1000000 -N $1"
  case $1 in p_live | p_drain) options="$options -a -f" ;; esac
  (cd "$work" && timeout 300 ./pan $options 2>&1) |
    awk '/errors:/ {e = $NF} /states, stored/ {s = $1} /max search depth|out of memory/ {e = "bound"} END {print e == "" ? "none" : e, s}'
}

# expect <name> <property> <0 or 1>
expect() {
  local start=$SECONDS answer
  read -r errors states <<<"$(search "$2")"
  searches=$((searches + 1))
  answer=ok
  [ "$errors" = "$3" ] || { answer=WRONG; wrong=$((wrong + 1)); }
  if [ "$answer" = WRONG ] || [ "$verbose" = -v ]; then
    printf '%-5s %-36s %-9s errors %s, want %s; %s states, %s s\n' "$answer" "$1" "$2" "$errors" "$3" "$states" $((SECONDS - start))
  fi
  return 0
}

# mutant <name> <defines> <property>
mutant() { build "-D$1 $2" && expect "$1" "$3" 1; }

lanes() {
  for policy in BLOCK PARK SKIP; do
    build "-DPOLICY=$policy -DVERBS=1 -DCRASHES=0"      && expect "$policy, an operator" p_safe 0
    build "-DPOLICY=$policy -DVERBS=1 -DCRASHES=0 -DOLD" && expect "$policy, an operator, old snapshot" p_safe 0
    build "-DPOLICY=$policy -DVERBS=0 -DCRASHES=2 -DOLD" && expect "$policy, crashes, old snapshot" p_safe 0 && expect "$policy, crashes, old snapshot" p_live 0
    build "-DPOLICY=$policy -DVERBS=0" && expect "$policy" p_drain 0
  done

  build "-DVERBS=2 -DPOISON=0 -DCRASHES=0" && expect "two verbs, no failures" p_safe 0

  for policy in BLOCK PARK; do
    build "-DPOLICY=$policy -DBATCHES=1 -DVERBS=1 -DCRASHES=0" && expect "$policy, batches, an operator" p_safe 0
    build "-DPOLICY=$policy -DBATCHES=1 -DVERBS=0 -DCRASHES=2" && expect "$policy, batches, crashes" p_safe 0 && expect "$policy, batches, crashes" p_live 0
  done

  mutant M_LOCKONLY  "-DOLD -DVERBS=0"                p_prompt
  mutant M_NORECHECK "-DVERBS=0"                      p_head
  mutant M_NOSWEEP   "-DVERBS=0"                      p_live
  mutant M_NOPROMOTE "-DVERBS=0"                      p_prompt
  mutant M_RETRYHEAD "-DPOLICY=PARK -DVERBS=1"        p_head
  mutant M_HEADONLY  "-DVERBS=0"                      p_order
  mutant M_POSFIRST  "-DVERBS=0"                      p_order
  mutant M_SKIPROW   "-DVERBS=1"                      p_order
  mutant M_BATCHSKIP  "-DBATCHES=1 -DVERBS=0"             p_order
  mutant M_BATCHBLIND "-DBATCHES=1 -DVERBS=1"             p_order

}

floor() {
  for what in "ORDERS=1 -DUNCLEAN=0 -DANEW=0" "ORDERS=0 -DUNCLEAN=1 -DANEW=0" "ORDERS=0 -DUNCLEAN=0 -DANEW=1"; do
    build "-D$what" && expect "$what" p_once 0 && expect "$what" p_all 0
  done
  mutant M_NOEPOCH     "-DORDERS=0 -DANEW=0"               p_all
  mutant M_NOID        "-DORDERS=0 -DUNCLEAN=0"            p_all
  mutant M_ASKFIRST    "-DORDERS=0 -DANEW=0 -DUNCLEAN=0"   p_once
  mutant M_HIGHEST     "-DORDERS=0 -DANEW=0 -DUNCLEAN=0"   p_all
  mutant M_JOIN        "-DANEW=0 -DUNCLEAN=0"              p_all
  mutant M_COMMITFIRST "-DANEW=0 -DUNCLEAN=0"              p_once
  mutant M_SINCENOW    "-DORDERS=0 -DANEW=0 -DUNCLEAN=0"   p_once
}

for model in $models; do $model; done
echo "$searches searches, $wrong wrong, $SECONDS s"
[ $wrong = 0 ]
