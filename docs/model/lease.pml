/* Overtake rule study. One holder A (session = ping document), one contender B, one lock.
   Discrete time; every process may be delayed arbitrarily between any two steps.
   CONDEMN     overtake first compare-and-sets the ping document on the exact seq watched
   END_LATE    contender reads its clock AFTER the second look (wrong); default: BEFORE it
   START_EARLY contender starts its stopwatch BEFORE the first look (wrong); default: AFTER it
   FROM_ACK    holder counts its deadline from the reply (wrong); default: from the send
   REVIVE      an acknowledged ping restores trust even after the deadline has passed
   STALE=W     a look may show the state of up to W ticks ago (deposed primary)                  */
#ifndef MAXT
#define MAXT 10
#endif
#ifndef T
#define T 4
#endif
#ifndef H
#define H 3
#endif
byte now = 0, seq = 1, dl = H;
bool condemned = false, taken = false, aHeld = true, bHeld = false;
#ifdef REVIVE
#define MAYPING true
#else
#define MAYPING (now < dl)
#endif
#define Abelieves (aHeld && now < dl)
#ifdef STALE
byte hist[MAXT+1];
active proctype Clock() { do :: now < MAXT -> atomic { hist[now] = seq; now++ } :: else -> break od }
#define LOOK(x) if :: x = seq :: (now >= STALE) -> x = hist[now - STALE] fi
#else
active proctype Clock() { do :: now < MAXT -> now++ :: else -> break od }
#define LOOK(x) x = seq
#endif
active proctype A() { byte s, last = 0; bool ok;
  do
  :: (aHeld && now > last && now < MAXT && MAYPING) -> last = now; s = now;
     atomic { ok = !condemned; if :: ok -> seq++ :: else fi };
     atomic {
#ifdef FROM_ACK
#define NEWDL (now + H)
#else
#define NEWDL (s + H)
#endif
       if
       :: !ok -> aHeld = false
#ifdef REVIVE
       :: ok -> dl = NEWDL
#else
       :: ok && now < dl -> dl = NEWDL
       :: ok && now >= dl -> aHeld = false
#endif
       fi }
  :: true -> break
  od }
active proctype B() { byte obs, t0, cur, t; bool won;
#ifdef START_EARLY
  t0 = now; LOOK(obs);
#else
  LOOK(obs); t0 = now;
#endif
  do
  :: now >= MAXT -> break
  :: else ->
#ifdef END_LATE
     LOOK(cur); t = now;
#else
     t = now; LOOK(cur);
#endif
     if
     :: cur != obs ->
#ifdef START_EARLY
        obs = cur; t0 = t
#else
        obs = cur; t0 = now
#endif
     :: cur == obs && t - t0 >= T ->
#ifdef CONDEMN
        atomic { won = (seq == obs); if :: won -> condemned = true :: else fi };
        if :: !won -> LOOK(obs); t0 = now; goto cont :: else fi;
#endif
        taken = true; bHeld = true; break
     :: else -> skip
     fi;
cont: skip
  od }
ltl excl { [] !(bHeld && Abelieves) }
