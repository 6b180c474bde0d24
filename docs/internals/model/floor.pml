/* One partition of a log, two receivers, and floors in the database. A floor says that the records of a range are settled, so that a redelivery
   of one needs no row in the inbox.

   Every `atomic` is one statement of SQL, one transaction, or one step of the broker. A receiver may stand still or die between any two steps,
   and both may hold the partition at once: a receiver that lost it may not know. An operator may set the commit to any place while the group is
   stopped, as Kafka demands.

   Offset and leader epoch identify a record of a topic id for ever. UNCLEAN is an election that cuts the log and appends other records under a
   higher epoch. ANEW is a topic that is deleted and made again: another id, offsets and epochs from the start.

   Floors are rows, each a range of records of one id and epoch; here a bit for each record. A receiver raises them to what it has seen settled, and
   only then commits that to the broker.

   Rows of the inbox that are older than `since` may be forgotten. A receiver looks at the end of the log, at some time. When all up to that end is
   covered, that time is the new `since`: whatever was handled before it, by any receiver, lay below that end. Not modelled: a receiver that
   stands still for longer than rows are kept.

   p_once: no intent takes effect twice. p_all: no record is passed over that has not taken effect.
   Mutants are made by -DM_...; floor.sh names the property that each must break. */
#ifndef UNCLEAN
#define UNCLEAN 1
#endif
#ifndef ANEW
#define ANEW 1
#endif
#ifndef ORDERS
#define ORDERS 1       /* how often an operator sets the commit */
#endif
#define LEN 2          /* records in the log */
#define NONE 9
#define VALUES 6       /* those of the first log, those behind an election, those of the new topic */

byte value[LEN]; byte epoch_of[LEN]; byte id = 1; byte end = 1;   /* the log: its records, its topic id, how many there are */
byte next_value = LEN;
byte effects[VALUES]; bool inbox[VALUES];

/* bits of floors: of id 1 epoch 1, id 1 epoch 2, id 2 epoch 1 */
bool floor[3 * LEN];
bool old[VALUES];       /* its row is older than `since` */
#define bit(i, o, e) ((i == 2 -> 2 : e - 1) * LEN + o)

byte commit = 0; byte group = 0;   /* group: grows when an operator stops all */
byte unclean = UNCLEAN, anew = ANEW, orders = ORDERS;
bool passed = 0;

#define twice (effects[0] > 1 || effects[1] > 1 || effects[2] > 1 || effects[3] > 1 || effects[4] > 1 || effects[5] > 1)

#ifdef M_NOEPOCH
#define covered(i, o, e) (i == 2 -> floor[2 * LEN + o] : floor[o] || floor[LEN + o])
#elif defined(M_NOID)
#define covered(i, o, e) (e == 1 -> floor[o] || floor[2 * LEN + o] : floor[LEN + o])
#else
#define covered(i, o, e) (floor[bit(i, o, e)])
#endif

/* What the mark passes joins the receiver's range of its epoch. */
inline pass() {
  if
  :: e[mark] == s_epoch && mark == s_top -> s_top = mark + 1
  :: else -> s_epoch = e[mark]; s_base = mark; s_top = mark + 1
  fi;
  mark++
}

/* Raise the floor to the range. */
inline raise() {
#ifdef M_REPLACE
  r = 0; do :: r < LEN -> floor[bit(of_id, r, s_epoch)] = 0; r++ :: else -> break od;
#endif
#ifdef M_JOIN
  r = 0;
#else
  r = s_base;
#endif
  do :: r < s_top -> floor[bit(of_id, r, s_epoch)] = 1; r++ :: else -> break od;
  up = s_top;
  r = 0
}

proctype receiver() {
  byte at, begin, mark, of_id, of_group;
  byte up;                           /* all that was settled below it is raised */
  byte s_base, s_top, s_epoch;       /* the last range of one epoch that is settled; what is before it was raised */
  byte v[LEN]; byte e[LEN]; bool out[LEN];
  byte n, r; byte look = NONE; bool seen[VALUES];    /* the end of the log when it looked, and the rows that there were */
again:
  atomic {  /* assigned */
    of_id = id; of_group = group; begin = commit; at = begin; mark = begin; up = begin;
    s_base = 0; s_top = 0; s_epoch = 0;
    out[0] = 0; out[1] = 0; v[0] = 0; v[1] = 0; e[0] = 0; e[1] = 0; n = 0; r = 0; look = NONE
  };
  do
  :: atomic { of_group != group -> goto again }
  :: atomic { at < end && of_id == id && of_group == group ->            /* fetch. What a floor covers is not handed out */
       v[at] = value[at]; e[at] = epoch_of[at];
       if
       :: covered(id, at, e[at]) -> if :: effects[v[at]] == 0 -> passed = 1 :: else fi
       :: else -> out[at] = 1
       fi;
       at++ }
  :: atomic { (out[0] || out[1]) && of_group == group -> if :: out[0] -> n = 0 :: out[1] -> n = 1 fi };
#ifdef M_ASKFIRST
     if :: atomic { covered(of_id, n, e[n]) -> goto settled } :: else fi;
#endif
     atomic {                                       /* the transaction: the row is inserted, the floor is asked, effect, COMMIT */
       if
       :: of_group != group -> goto again
       :: inbox[v[n]] && of_group == group -> skip
#ifndef M_ASKFIRST
       :: of_group == group && !inbox[v[n]] && covered(of_id, n, e[n]) -> if :: effects[v[n]] == 0 -> passed = 1 :: else fi
       :: of_group == group && !inbox[v[n]] && !covered(of_id, n, e[n]) -> inbox[v[n]] = 1; effects[v[n]]++
#else
       :: else -> inbox[v[n]] = 1; effects[v[n]]++
#endif
       fi
     };
#ifdef M_ASKFIRST
settled:
#endif
     atomic { out[n] = 0; n = 0 }                   /* acknowledged */
#ifdef M_HIGHEST
  :: atomic { mark < at && !(out[0] && out[1]) ->
#else
  :: atomic { mark < at && !out[mark] ->            /* the mark moves; a range that ends is raised first */
#endif
       if :: s_top > 0 && s_epoch != e[mark] -> raise() :: else fi;
       pass() }
  :: atomic { s_top > 0 -> raise() }                /* one statement */
  :: atomic { of_id == id && of_group == group && mark > begin && commit != mark &&
#ifndef M_COMMITFIRST
       up == mark &&
#endif
       1 -> commit = mark }
  :: atomic { look == NONE && of_id == id && of_group == group -> look = end;
       do :: r < VALUES -> seen[r] = inbox[r]; r++ :: else -> break od; r = 0 }
  :: atomic {
#ifndef M_SINCENOW
       of_group == group && look != NONE && mark >= look && up == mark ->
#else
       of_group == group && look != NONE && up == mark ->
#endif
       look = NONE;
       do :: r < VALUES -> old[r] = old[r] || seen[r]; r++ :: else -> break od; r = 0 }
  :: atomic { of_id != id || mark == LEN -> goto again }  /* it hears of the new topic, or begins again */
  od
}

/* A row that is older than the last raise may be forgotten. */
proctype purge() {
  byte n;
  do
  :: atomic { n < VALUES && inbox[n] && old[n] -> inbox[n] = 0 }
  :: n < VALUES -> n++
  :: n == VALUES -> n = 0
  od
}

proctype broker() {
  do
  :: atomic { end < LEN -> end++ }
  :: atomic { unclean > 0 && id == 1 -> unclean--; end = LEN;
       if :: value[0] = next_value; epoch_of[0] = 2; next_value++ :: skip fi;
       value[1] = next_value; epoch_of[1] = 2; next_value++ }
  :: atomic { anew > 0 -> anew--; id = 2; commit = 0; end = LEN;
       value[0] = 4; value[1] = 5; epoch_of[0] = 1; epoch_of[1] = 1 }
  :: atomic { orders > 0 -> orders--; group++; if :: commit = 0 :: commit = 1 fi }
  od
}

init {
  atomic {
    value[0] = 0; value[1] = 1; epoch_of[0] = 1; epoch_of[1] = 1;
    run receiver(); run receiver(); run purge(); run broker()
  }
}

ltl p_once { [] !twice }
ltl p_all { [] !passed }
