"""The tables of a run's database, and what each of their values may be."""

# Each value has its kind and its range: an edit by hand is refused there, and one past that is found when it is opened.
_ABOUT = """typeof(value) = 'text' AND (name NOT IN ('started', 'finished') OR
  (value GLOB '????-??-??T??:??:??.???+00:00' AND julianday(value) IS NOT NULL))
  AND (name <> 'spent' OR value NOT GLOB '*[^0-9.e+-]*' AND CAST(value AS REAL) BETWEEN 0 AND 1e300)"""
_TARGET = """typeof(key) = 'text' AND population IN ('canary', 'negative', 'positive')
  AND (tier IN ('site', 'cohort', 'ladder', 'vendor', 'window')) IS (CASE population WHEN 'canary' THEN 1 END)
  AND (occurrences IS NULL OR typeof(occurrences) = 'integer' AND occurrences >= 0)
  AND (cohort IS NULL OR cohort IN ('linked', 'sitemap', 'honeypot'))
  AND (typeof(id) = 'integer' AND id BETWEEN 0 AND 281474976710655) = (population <> 'positive')
  AND typeof(log_row) IN ('null', 'text')"""
_ANSWER = """typeof(key) = 'text' AND typeof(target) = 'text'
  AND kind IN ('completion', 'who', 'year', 'archive', 'paraphrase')
  AND typeof(temperature) = 'real' AND temperature BETWEEN 0 AND 2 AND typeof(repeat) = 'integer' AND repeat >= 0
  AND typeof(raw) = 'integer' AND raw BETWEEN 0 AND 63 AND typeof(net) = 'integer' AND net & raw = net
  AND typeof(bits) = 'real' AND bits BETWEEN 0 AND 1000 AND raw_decoded IN (0, 1) AND decoded IN (0, 1)
  AND empty IN (0, 1) AND refusal IN (0, 1) AND typeof(others) = 'text' AND others NOT GLOB '*[^0-9a-f ]*'
  AND (prompt_tokens IS NULL OR typeof(prompt_tokens) = 'integer' AND prompt_tokens >= 0)
  AND (completion_tokens IS NULL OR typeof(completion_tokens) = 'integer' AND completion_tokens >= 0)"""
_MEAN = "typeof(target) = 'text' AND typeof(nats) = 'real' AND abs(nats) < 1e300"
SCHEMA = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL, CHECK ({_ABOUT}));
CREATE TABLE targets (place INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, population TEXT NOT NULL, tier TEXT,
  occurrences INTEGER, cohort TEXT, id INTEGER, log_row TEXT, CHECK ({_TARGET}));
CREATE TABLE answers (key TEXT PRIMARY KEY, target TEXT NOT NULL, kind TEXT NOT NULL, temperature REAL NOT NULL,
  repeat INTEGER NOT NULL, raw INTEGER NOT NULL, net INTEGER NOT NULL, bits REAL NOT NULL,
  raw_decoded INTEGER NOT NULL, decoded INTEGER NOT NULL, others TEXT NOT NULL, empty INTEGER NOT NULL,
  refusal INTEGER NOT NULL, prompt_tokens INTEGER, completion_tokens INTEGER,
  UNIQUE (target, kind, temperature, repeat), CHECK ({_ANSWER}));
CREATE TABLE failures (key TEXT PRIMARY KEY, reason TEXT NOT NULL, CHECK (typeof(reason) = 'text'));
CREATE TABLE means (target TEXT NOT NULL, measure TEXT NOT NULL, nats REAL NOT NULL, PRIMARY KEY (target, measure),
  CHECK ({_MEAN}));
"""
TABLES = {"about", "targets", "answers", "failures", "means"}
