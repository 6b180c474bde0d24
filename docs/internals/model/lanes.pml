/* One lane: ordered work on one key. A process may stand still or die between any two steps.

   Every `atomic` is one statement of SQL or one COMMIT. What a transaction has written is seen by others only from its
   commit on, so "delete the head" and "see it gone" are different moments: that gap is what this model is for.

   lock   the row of pawl.lane is locked by somebody's `update ... set ver = ver + 1`
   moved  one of those has committed since the snapshot of the REPEATABLE READ transaction, which is then told 40001
   row[]  a row of pawl.job is locked by a promotion that has not committed
   Positions are the indexes of st[]. NONE is a job that is not there: not yet enqueued, or rolled back.

   Mutants are made by -DM_...; run.sh names the property that each must break. */
#ifndef JOBS
#define JOBS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef POISON
#define POISON 1      /* attempts that end in a dead letter */
#endif
#ifndef VERBS
#define VERBS 1       /* what the operator does */
#endif
#ifndef BATCHES
#define BATCHES 0     /* heads take along those that wait */
#endif
#ifndef POLICY
#define POLICY BLOCK
#endif
#define FIRST 1
#define END (JOBS + 1)

mtype = { NONE, WAIT, PEND, PROC, DEAD, PARKED, CANCELLED, DONE, OUT };
mtype = { BLOCK, PARK, SKIP };

mtype st[END] = NONE;
bool row[END];
bool freed[END];      /* it has once let go of its turn: finished, parked, cancelled, discarded */
bool ran[END];        /* it has been claimed */
bool lock = 0;
bool moved = 0;
byte next_position = FIRST;
byte crashes = 0, poisoned = 0;
byte writers = 2;     /* that have not ended */
byte verbs = VERBS;   /* that the operator has left */
byte owed = 0;        /* lanes skipped by a finish whose worker is still alive to promote them */
bool abandoned = 0;        /* somebody died, or is no worker, and left the lane to the sweep */
bool inverted = 0, twice = 0;

#define is_head(j) (st[j] == PEND || st[j] == PROC || st[j] == DEAD)
#define heads      (is_head(1) + is_head(2) + is_head(3))
#define anybody_waits (st[1] == WAIT || st[2] == WAIT || st[3] == WAIT)
#define frozen     (anybody_waits && !is_head(1) && !is_head(2) && !is_head(3))
#define settled(j) (st[j] != WAIT && st[j] != PEND && st[j] != PROC)
#define ended      (writers == 0 && verbs == 0 && settled(1) && settled(2) && settled(3) && owed == 0)

#ifdef M_LOCKONLY
#define bump
#else
#define bump moved = 1
#endif

inline committed() { if :: heads > 1 -> twice = 1 :: else fi }

/* A batch is a head and those that wait behind it: m1 and m2, in order, 0 for none. They stay WAIT; the head's row guards them. */
#define waits(k) (st[k] == WAIT && m1 != k && m2 != k)

/* What the holder of the lane's lock sees waiting first; `but` is deleted in its own transaction. */
inline look(but, chosen) {
  chosen = 0;
#ifdef M_SKIPROW
  if :: waits(1) && !row[1] -> chosen = 1
     :: else -> if :: waits(2) && !row[2] -> chosen = 2
     :: else -> if :: waits(3) && !row[3] -> chosen = 3 :: else fi fi fi;
#else
  if :: waits(1) -> chosen = 1
     :: else -> if :: waits(2) -> chosen = 2
     :: else -> if :: waits(3) -> chosen = 3 :: else fi fi fi;
#endif
#ifndef M_NORECHECK
  if :: heads > (but != 0 && is_head(but)) -> chosen = 0 :: else fi
#endif
}

/* pawl_v1.lane_finish deletes a member with the head. Until then the row is locked. */
inline end_member(m) {
  if
  :: m != 0 -> if :: (m > 1 && !freed[1]) || (m > 2 && !freed[2]) -> inverted = 1 :: else fi;
               st[m] = DONE; row[m] = 0; freed[m] = 1
  :: else
  fi
}

/* pawl_v1.lane_batch, then the sink: what waits behind the head, in order, cut anywhere. An event is first published after all before it. */
inline take_run() {
  if
  :: st[j] == PROC && BATCHES ->
     if :: st[1] == WAIT -> m1 = 1 :: else -> if :: st[2] == WAIT -> m1 = 2 :: else -> if :: st[3] == WAIT -> m1 = 3 :: else fi fi fi;
     if :: m1 != 0 && m1 < 2 && st[2] == WAIT -> m2 = 2 :: else -> if :: m1 != 0 && m1 < 3 && st[3] == WAIT -> m2 = 3 :: else fi fi;
     if :: m2 = 0 :: skip fi;
     if :: m1 != 0 && m2 == 0 -> m1 = 0 :: skip fi;
#ifdef M_BATCHSKIP
     if :: m2 != 0 -> m1 = m2; m2 = 0 :: else fi;
#endif
     publish(m1); publish(m2)
  :: else
  fi
}
inline publish(m) {
  if
  :: m != 0 ->
     if :: !ran[m] && ((m > 1 && !freed[1] && j != 1 && m1 != 1) || (m > 2 && !freed[2] && j != 2 && m1 != 2)) -> inverted = 1 :: else fi;
     ran[m] = 1
  :: else
  fi
}

/* pawl_v1.lane_finish locks the members that still wait, up to the first that another transaction has. */
inline lock_run() {
#ifndef M_BATCHBLIND
  if :: m1 != 0 && st[m1] == WAIT && row[m1] -> m1 = 0; m2 = 0 :: else fi;
#endif
  if :: m1 != 0 && (st[m1] != WAIT || row[m1]) -> m1 = 0 :: else fi;
  if :: m2 != 0 && (st[m2] != WAIT || row[m2]) -> m2 = 0 :: else fi;
  if :: m1 != 0 -> row[m1] = 1 :: else fi;
  if :: m2 != 0 -> row[m2] = 1 :: else fi
}

/* The end of a head's turn. The row goes first, then the lane is asked for without waiting; it all becomes visible at
   COMMIT. A worker promotes the lane that it had to skip, after that; an operator leaves it to the sweep. */
inline give_up(j, to, worker) {
  atomic {
    skipped = 0; locked = 0; chosen = 0;
#ifndef M_NOPROMOTE
    if :: !lock -> lock = 1; locked = 1;
                   look(j, chosen);
                   if :: chosen != 0 && row[chosen] -> chosen = 0; skipped = 1
                      :: chosen != 0 && !row[chosen] -> row[chosen] = 1
                      :: else fi
       :: else -> skipped = 1
    fi
#endif
  }
  atomic {
    st[j] = to; row[j] = 0; freed[j] = 1;
    end_member(m1); end_member(m2); m1 = 0; m2 = 0;
    if :: chosen != 0 -> st[chosen] = PEND; row[chosen] = 0 :: else fi;
    if :: locked -> lock = 0; bump :: else fi;
    if :: skipped && worker -> owed++ :: skipped && !worker -> abandoned = 1 :: else fi;
    committed(); locked = 0; chosen = 0
  }
}

/* pawl_v1.lane_promote, and what the sweep does to a lane that it found: lock, look, promote. */
inline promote_locked() {
  look(0, chosen);
  if :: chosen != 0 && !row[chosen] -> st[chosen] = PEND
     :: chosen != 0 && row[chosen] -> abandoned = 1
     :: else fi;
  bump; committed(); chosen = 0
}

/* pawl_v1.job_enqueue at READ COMMITTED: each statement sees what has committed before it. */
proctype Writer(byte n) {
  byte me; bool first;
  do
  :: n > 0 ->
#ifdef M_POSFIRST
     atomic { me = next_position; next_position++ };
     atomic { !lock -> lock = 1 };
#else
     atomic { !lock -> lock = 1; me = next_position; next_position++ };
#endif
#ifdef M_HEADONLY
     atomic { first = (heads == 0) };
#else
     atomic { first = (heads == 0 && !anybody_waits) };
#endif
     atomic { /* as late as it likes */
       if :: st[me] = (first -> PEND : WAIT);
             if :: (me < 2 && ran[2]) || (me < 3 && ran[3]) -> inverted = 1 :: else fi;
             bump
          :: st[me] = NONE; freed[me] = 1 /* rolled back */
       fi;
       lock = 0; n--; committed(); me = 0; first = 0
     }
  :: n == 0 -> break
  od;
  writers--
}

/* The same from a transaction with an old snapshot: REPEATABLE READ. */
proctype OldWriter() {
  byte me; bool first;
again:
  atomic { moved = 0; first = (heads == 0 && !anybody_waits) };
  atomic {
    !lock ->
    if :: moved -> first = 0; goto again /* 40001 */
       :: else -> lock = 1; me = next_position; next_position++
    fi
  };
  atomic {
    st[me] = (first -> PEND : WAIT);
    if :: (me < 2 && ran[2]) || (me < 3 && ran[3]) -> inverted = 1 :: else fi;
    bump; lock = 0; committed(); writers--
  }
}

/* Claims a head, ends it well or badly, promotes what it had to skip. It may die before or after the commit. */
proctype Worker() {
  byte j, chosen, m1, m2; bool skipped, locked;
  do
  :: atomic { /* pawl_v1.job_claim */
       if :: st[1] == PEND && !row[1] -> j = 1 :: st[2] == PEND && !row[2] -> j = 2 :: st[3] == PEND && !row[3] -> j = 3 fi;
       st[j] = PROC;
       if :: !ran[j] && ((j > 1 && !freed[1]) || (j > 2 && !freed[2])) -> inverted = 1 :: else fi;
       ran[j] = 1
     };
     atomic { take_run() };
     if
     :: atomic { crashes < CRASHES && st[j] == PROC && !row[j] -> crashes++; st[j] = PEND } /* job_sweep gives it back */
     :: atomic { st[j] != PROC -> skip } /* fenced out by the operator */
     :: atomic { st[j] == PROC && !row[j] -> row[j] = 1 };
        if
        :: atomic { lock_run() }; give_up(j, DONE, 1)
        :: atomic { poisoned < POISON -> poisoned++; m1 = 0; m2 = 0 };
           if :: POLICY == BLOCK -> atomic { st[j] = DEAD; row[j] = 0; committed() }
              :: else -> give_up(j, PARKED, 1)
           fi
        fi;
        if
        :: skipped ->
           if
           :: atomic { crashes < CRASHES -> crashes++; owed--; abandoned = 1 } /* dies between the commit and the promotion */
           :: atomic { !lock -> lock = 1 }; atomic { owed--; promote_locked(); lock = 0 }
           fi
        :: else
        fi
     fi;
     atomic { j = 0; skipped = 0; m1 = 0; m2 = 0 }
  :: atomic { ended -> break }
  od
}

#ifndef M_NOSWEEP
/* pawl_v1.lane_sweep: looks, then takes the lane without waiting and looks again. */
active proctype Sweep() {
  byte chosen, m1, m2; bool found;
  do
  :: atomic { frozen -> found = 1
#ifdef M_NORECHECK
     ; if :: st[1] == WAIT -> chosen = 1 :: else -> if :: st[2] == WAIT -> chosen = 2 :: else -> chosen = 3 fi fi
#endif
     };
     if
     :: atomic { !lock ->
#ifdef M_NORECHECK
          if :: st[chosen] == WAIT -> st[chosen] = PEND :: else fi; bump; committed(); chosen = 0
#else
          promote_locked()
#endif
        }
     :: atomic { lock -> skip }
     fi;
     found = 0; chosen = 0
  :: atomic { ended -> break }
  od
}
#endif

/* job_cancel, job_discard, job_retry and lane_unblock, each at any moment, on any job. */
proctype Operator() {
  byte j, chosen, m1, m2; bool skipped, locked;
  do
  :: verbs > 0 ->
     if :: j = 1 :: j = 2 :: j = 3 fi;
     if
     :: atomic { is_head(j) && !row[j] -> row[j] = 1 }; give_up(j, CANCELLED, 0)   /* cancel, or discard of a dead head */
     :: atomic { st[j] == WAIT && !row[j] -> row[j] = 1 };                         /* cancel of one that waits, or a rollback */
        atomic { row[j] = 0; if :: st[j] = CANCELLED; freed[j] = 1 :: skip fi }
     :: atomic { st[j] == DEAD && !row[j] -> st[j] = PEND }                        /* retry of a head that blocks */
     :: atomic { !lock && st[j] == DEAD && !row[j] -> lock = 1 };                  /* lane_unblock */
        atomic {
          if :: st[j] == DEAD && !row[j] -> st[j] = PARKED; freed[j] = 1 :: else fi;
          promote_locked(); lock = 0
        }
     :: atomic { !lock && (st[j] == PARKED || st[j] == CANCELLED) && !row[j] -> lock = 1 }; /* retry of one that gave up its turn */
        atomic {
          if
          :: st[j] != PARKED && st[j] != CANCELLED -> lock = 0
          :: POLICY == SKIP && (st[j] == PARKED || st[j] == CANCELLED) -> st[j] = OUT; bump; lock = 0
          :: POLICY != SKIP && (st[j] == PARKED || st[j] == CANCELLED) ->
#ifdef M_RETRYHEAD
             st[j] = PEND; bump; committed(); lock = 0
#else
             st[j] = WAIT; promote_locked(); lock = 0
#endif
          fi
        }
     :: skip /* or nothing */
     fi;
     verbs--; j = 0
  :: verbs == 0 -> break
  od
}

init {
  atomic {
#ifdef OLD
    run Writer(2); run OldWriter();
#else
    run Writer(2); run Writer(1);
#endif
    run Worker(); run Worker(); run Operator()
  }
}

#define promptly (!(frozen && !lock && owed == 0) || abandoned)
/* everything has been done, or a dead letter blocks what waits behind it */
#define stopped    (writers == 0 && verbs == 0 && owed == 0 && st[1] != PEND && st[2] != PEND && st[3] != PEND && st[1] != PROC && st[2] != PROC && st[3] != PROC && (st[1] == DEAD || st[2] == DEAD || st[3] == DEAD))
ltl p_safe   { [] (!inverted && !twice && promptly) }
ltl p_order  { [] !inverted }
ltl p_head   { [] !twice }
ltl p_prompt { [] promptly }
ltl p_drain  { <> [] (ended || stopped) }
ltl p_live   { [] (frozen -> <> !frozen) }
