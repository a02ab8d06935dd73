/* The takeover rule: one holder A, two contenders, one lock. A compare-and-set is one step, and every
   process may be delayed for any time between two of its steps. Three clocks: now (A's), srv (the
   server's) and own (of the contenders); one of the last two may be wrong.

   Rules, each of which a variant breaks or replaces:
   CONDEMN      the takeover first condemns the very ping that was watched; without it (3.2) it names
                the session only
   BY_ID        the takeover names the lock only (1.8)
   AGE          the contender subtracts the date in the ping from its own clock (1.8)
   SERVER_ONLY  it measures by the server's clock (2.0 to 6.0); default: by both clocks
   OWN_ONLY     it measures by its own clock
   NO_DEADLINE  the holder trusts its lock for ever (all of mongos)
   END_LATE     the contender reads its clock AFTER the second look; default: BEFORE it
   START_EARLY  it starts its stopwatch BEFORE the first look; default: AFTER it
   FROM_ACK     the holder counts its deadline from the reply; default: from the send
   REVIVE       an acknowledged ping restores trust after the deadline
   ONE          there is one contender
   Faults:
   JUMP_SRV=n, JUMP_OWN=n  the clock jumps ahead by n ticks, once, at any time
   STALE        a look may show the state of one tick ago (a deposed primary)             */
#ifndef MAXT
#define MAXT 5
#endif
#ifndef T
#define T 3
#endif
#ifndef H
#define H 3
#endif
byte now = 0, srv = 0, own = 0, seq = 1, dated = 0, dl = H, ts = 0, before = 1;
bool condemned = false, aHeld = true, jumped = false;
bool held[3];

#ifdef NO_DEADLINE
#define TRUSTS aHeld
#else
#define TRUSTS (aHeld && now < dl)
#endif
#ifdef REVIVE
#define MAYPING true
#else
#define MAYPING TRUSTS
#endif
#ifdef FROM_ACK
#define NEWDL (now + H)
#else
#define NEWDL (sent + H)
#endif
#ifdef STALE
#define LOOK(x) if :: x = seq :: x = before fi
#define SEEN before = seq
#else
#define LOOK(x) x = seq
#define SEEN skip
#endif

#define OWN_ENOUGH (o - o0 >= T)
#define SRV_ENOUGH (s - s0 >= T)
#if defined(SERVER_ONLY)
#define ENOUGH SRV_ENOUGH
#elif defined(OWN_ONLY)
#define ENOUGH OWN_ENOUGH
#else
#define ENOUGH (OWN_ENOUGH && SRV_ENOUGH)
#endif

active proctype Clock() {
  do
  :: now < MAXT -> d_step { now++; srv++; own++; SEEN }
#ifdef JUMP_SRV
  :: !jumped -> d_step { jumped = true; srv = srv + JUMP_SRV }
#endif
#ifdef JUMP_OWN
  :: !jumped -> d_step { jumped = true; own = own + JUMP_OWN }
#endif
  :: now >= MAXT -> break
  od
}

active proctype A() { byte sent, last = 0; bool ok;
  do
  :: MAYPING && now > last && now < MAXT -> d_step { last = now; sent = now };
     d_step { ok = !condemned; if :: ok -> seq++; dated = sent :: else fi };
     d_step {
       if
       :: !ok -> aHeld = false
#ifdef REVIVE
       :: ok -> dl = NEWDL
#else
       :: ok && TRUSTS -> dl = NEWDL
       :: ok && !TRUSTS -> aHeld = false
#endif
       fi;
       sent = 0; ok = false
     }
  :: true -> break
  od
}

proctype Contender(byte i) { byte obs, o0, s0, o, s; bool same, won;
#ifdef AGE
  byte date;
aged:
  if :: now >= MAXT || ts != 0 -> goto end :: else fi;
  date = dated; o = own;
  if
  :: o >= date && o - date >= T -> d_step { date = 0; o = 0 }; goto take
  :: else -> d_step { date = 0; o = 0 }; goto aged
  fi;
#else
first:
  if :: now >= MAXT || ts != 0 -> goto end :: else fi;
#ifdef START_EARLY
  o0 = own;
  atomic { LOOK(obs); s0 = srv };
#else
  atomic { LOOK(obs); s0 = srv };
  o0 = own;
#endif
second:
  if :: now >= MAXT || ts != 0 -> goto end :: else fi;
#ifdef END_LATE
  atomic { LOOK(o); same = (o == obs); s = srv };
  o = own;
#else
  o = own;
  atomic { LOOK(s); same = (s == obs); s = srv };
#endif
  if
  :: !same -> d_step { same = false; o = 0; s = 0; o0 = 0; s0 = 0; obs = 0 }; goto first
  :: same && !ENOUGH -> d_step { same = false; o = 0; s = 0 }; goto second
  :: same && ENOUGH -> d_step { same = false; o = 0; s = 0; o0 = 0; s0 = 0 }
  fi;
#ifdef CONDEMN
  d_step { won = (seq == obs); if :: won -> condemned = true :: else fi };
  if :: !won -> obs = 0; goto first :: won -> d_step { won = false; obs = 0 } fi;
#endif
#endif
take: skip;
#ifdef BY_ID
  d_step { ts = i; held[i] = true };
#else
  d_step { if :: ts == 0 -> ts = i; held[i] = true :: else fi };
#endif
end: skip
}

#ifdef ONE
init { run Contender(1) }
#else
init { atomic { run Contender(1); run Contender(2) } }
#endif

#define TWO ((TRUSTS && (held[1] || held[2])) || (held[1] && held[2]))
ltl excl { [] !TWO }
