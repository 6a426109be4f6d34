//! Texts of many kinds, the same on every run.

/// Prose, code and data as they come in requests, a few kilobytes each, with what they are.
pub(super) fn ordinary() -> Vec<(&'static str, String)> {
    vec![
        ("prose", PROSE.to_owned()),
        ("Rust, JSON scanner", include_str!("../../src/request/scan.rs").to_owned()),
        ("Rust, usage", include_str!("../../src/usage.rs").to_owned()),
        ("Rust, splice", include_str!("../../src/splice.rs").to_owned()),
        ("Rust, events", include_str!("../../src/sse.rs").to_owned()),
        ("Rust, count", include_str!("../../src/count.rs").to_owned()),
        ("Rust, tests", include_str!("mod.rs").to_owned()),
        ("JSON", JSON.repeat(8)),
        ("Python", PYTHON.repeat(2)),
        ("Markdown", MARKDOWN.to_owned()),
    ]
}

/// Everything that the estimate must cover.
pub(super) fn of_many_kinds() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        ordinary().into_iter().map(|(kind, text)| (kind.to_owned(), text)).collect();
    for (kind, text) in ordinary() {
        for (index, piece) in pieces(&text, 300).into_iter().enumerate() {
            all.push((format!("{kind}, piece {index}"), piece.to_owned()));
        }
    }
    all.extend(LANGUAGES.iter().map(|(kind, text)| ((*kind).to_owned(), text.repeat(6))));
    let mut random = Random(7);
    for (kind, alphabet) in alphabets() {
        for length in [1, 2, 5, 20, 100, 700, 5_000] {
            let text = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
            all.push((format!("random {kind}, {length} characters"), text));
        }
    }
    for unit in [" ", "\n", "\t", "\r\n", "a", "0", "-", "=", ".", "_", "é", "я", "中", "😀", "\0", "x"]
    {
        for times in [1, 3, 17, 200, 4_000] {
            all.push((format!("{unit:?} {times} times"), unit.repeat(times)));
        }
    }
    for (kind, word) in words() {
        let text: String = (0..400).map(|_| word(&mut random)).collect();
        all.push((kind.to_owned(), text));
    }
    all
}

/// Patterns made to look cheaper than they are.
pub(super) fn patterns() -> Vec<String> {
    let units = ["ab", "O ", "u+MA", "x1", "%  ", "Cc", "1 \n", "er", "in", "a.b", "ti ", "V del ", "&"];
    units.iter().map(|unit| unit.repeat(800)).collect()
}

/// `text` cut into pieces of about `bytes` bytes at the ends of words.
pub(super) fn pieces(text: &str, bytes: usize) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while rest.len() > bytes {
        let end = (bytes..rest.len()).find(|&at| rest.as_bytes()[at] == b' ').unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

pub(super) fn beginning(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A linear congruential generator: Knuth's MMIX constants.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn alphabets() -> Vec<(&'static str, Vec<char>)> {
    let between =
        |first: u32, last: u32| -> Vec<char> { (first..=last).filter_map(char::from_u32).collect() };
    let of = |text: &str| text.chars().collect::<Vec<_>>();
    vec![
        ("base64", of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")),
        ("hexadecimal", of("0123456789abcdef")),
        ("hexadecimal in capitals", of("0123456789ABCDEF")),
        ("digits", of("0123456789")),
        ("letters", of("abcdefghijklmnopqrstuvwxyz")),
        ("capitals", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ")),
        ("visible ASCII", between(0x20, 0x7E)),
        ("ASCII", between(0, 0x7F)),
        ("marks", between(0x21, 0x2F)),
        ("blanks", of(" \t\n\r")),
        ("Latin with marks", between(0xC0, 0x17F)),
        ("Greek", between(0x391, 0x3C9)),
        ("Cyrillic", between(0x410, 0x44F)),
        ("Hebrew", between(0x5D0, 0x5EA)),
        ("Arabic", between(0x621, 0x64A)),
        ("Devanagari", between(0x905, 0x94D)),
        ("Thai", between(0xE01, 0xE3A)),
        ("Georgian", between(0x10D0, 0x10F0)),
        ("arrows", between(0x2190, 0x21FF)),
        ("Kana", between(0x3041, 0x30FA)),
        ("Han", between(0x4E00, 0x9FA5)),
        ("Hangul", between(0xAC00, 0xD7A3)),
        ("private use", between(0xE000, 0xF8FF)),
        ("emoji", between(0x1F300, 0x1F64F)),
        ("rare Han", between(0x2_0000, 0x2_A6D6)),
        ("all of Unicode", between(0, 0x10_FFFF)),
    ]
}

type Word = fn(&mut Random) -> String;

fn words() -> Vec<(&'static str, Word)> {
    vec![
        ("numbers", |random| format!("{} ", random.next() >> random.below(32))),
        ("decimal fractions", |random| format!("-0.{:06}, ", random.below(1_000_000))),
        ("table rows", |random| {
            format!("{},{},{}\n", random.below(90_000), random.below(3_000), random.below(500))
        }),
        ("identifiers", |random| {
            format!("{:08x}-{:04x}-4{:03x}\n", random.next(), random.below(65_536), random.below(4_096))
        }),
        ("made-up words", |random| {
            let length = 1 + random.below(11);
            (0..length).map(|_| (b'a' + random.below(26) as u8) as char).chain([' ']).collect()
        }),
        ("log lines", |random| {
            format!(
                "2026-11-30T21:{:02}:{:02}.{:03}Z INFO request id={} status=200\n",
                random.below(60),
                random.below(60),
                random.below(1_000),
                random.next()
            )
        }),
        ("paths", |random| {
            format!("/srv/app/v{}/src/part_{}.rs:{}\n", random.below(9), random.below(40), random.below(900))
        }),
        ("camel case", |random| format!("getValue{}FromNode ", ["Of", "By", "For", "Http"][random.below(4)])),
    ]
}

const PROSE: &str = "A gateway stands between many clients and a few machines that are slow and dear. Each client \
believes that it is alone, and asks as often as it likes. If requests are counted, the one who sends short \
questions is refused while the one who sends whole books is served, because a request says nothing about the \
work behind it. So the gateway counts tokens: those that come in with the question, and those that go out with \
the answer. The first can be known before anything runs. The second cannot, and therefore the largest answer \
allowed is set aside at the beginning and whatever was not used is given back at the end. Nobody has to trust \
the client for this, and nobody has to guess. When the account is empty, the answer says so at once, names the \
limit that was hit, and tells how long to wait. A polite client waits exactly that long and then gets through; \
an impolite one finds the same door closed again, and has cost the others nothing.\n\nFairness is a second \
matter. Even when everybody stays within their limits, a long queue can form in a busy hour, and then the \
question is who goes first. Serving in the order of arrival sounds just, but it lets a single tenant with a \
hundred waiting jobs push everybody else to the back. Instead each tenant has a counter of the work done for \
it, and the one with the least goes next. Someone who comes back after a quiet night does not bring along \
credit for the hours of sleep; the counter is lifted to where the others are. It's a simple rule, and it can be \
proved that two busy tenants never drift apart by more than a small amount, whatever they send.";

const JSON: &str = r#"{"id":"req-81f2","object":"list","created":1790812345,"model":"llama-3.1-8b","data":[{"index":0,"name":"alpha","tags":["fast","small"],"score":0.9312,"active":true},{"index":1,"name":"beta","tags":[],"score":-1.5,"active":false}],"usage":{"prompt_tokens":128,"completion_tokens":64,"total_tokens":192},"next":null}
"#;

const PYTHON: &str = r#"
import json
from dataclasses import dataclass


@dataclass
class Bucket:
    """A bucket of tokens that fills up steadily."""

    capacity: float
    refill_per_second: float
    level: float = 0.0
    updated_at: float = 0.0

    def take(self, tokens: float, now: float) -> bool:
        elapsed = max(0.0, now - self.updated_at)
        self.level = min(self.capacity, self.level + elapsed * self.refill_per_second)
        self.updated_at = now
        if self.level < tokens:
            return False
        self.level -= tokens
        return True


def report(buckets: dict[str, Bucket]) -> str:
    rows = [{"tenant": name, "level": round(bucket.level, 2)} for name, bucket in sorted(buckets.items())]
    return json.dumps(rows, indent=2)


if __name__ == "__main__":
    buckets = {name: Bucket(2000, 100) for name in ("shop", "agent", "batch")}
    for second in range(10):
        for name, bucket in buckets.items():
            if not bucket.take(250, second):
                print(f"{name} has to wait at {second} s")
    print(report(buckets))
"#;

const MARKDOWN: &str = "# Limits\n\nA limit is a **rate** with a *burst*, written `200000/min burst 20s`.\n\n\
- `tokens`: input and output together\n- `requests`: each call, whatever its size\n- `concurrent_requests`: calls \
that run at the same time\n\n## What a refusal says\n\n| situation | status | retry |\n|---|---|---|\n| a limit is \
exhausted | 429 | after `Retry-After` |\n| can never fit | 400 | no |\n| no backend alive | 503 | yes |\n\nSee [the \
guide](https://example.com/guide/limits.html) for more, and try it:\n\n```sh\ncurl -s http://127.0.0.1:8080/v1/models \
-H 'authorization: Bearer secret'\n```\n\n> Note: a burst of zero refuses everything. Use `null` for no limit at \
all.\n\n1. Start with the limits you were promised by your provider.\n2. Divide them among the tenants.\n3. Watch \
the refusals for a week, then change one number at a time.\n";

const LANGUAGES: &[(&str, &str)] = &[
    (
        "German",
        "Jede Anfrage reserviert ihre Token, bevor sie läuft; was übrig bleibt, wird am Ende zurückgegeben. ",
    ),
    ("French", "Chaque requête réserve ses jetons avant de s'exécuter, et ce qui reste est rendu à la fin. "),
    ("Spanish", "Cada petición reserva sus fichas antes de ejecutarse y al final se devuelve lo que sobra. "),
    ("Polish", "Każde żądanie rezerwuje swoje tokeny, zanim ruszy, a reszta zostaje na końcu zwrócona. "),
    ("Turkish", "Her istek çalışmadan önce jetonlarını ayırır ve kalanlar sonunda geri verilir. "),
    (
        "Finnish",
        "Jokainen pyyntö varaa merkkinsä ennen suoritusta, ja käyttämättä jääneet palautetaan lopuksi. ",
    ),
    ("Swahili", "Kila ombi huhifadhi tokeni zake kabla ya kuanza, na zilizobaki hurudishwa mwishoni. "),
    ("Vietnamese", "Mỗi yêu cầu giữ trước số token của nó, và phần còn lại được trả về khi kết thúc. "),
    ("Russian", "Каждый запрос резервирует свои токены до запуска, а остаток возвращается в конце. "),
    ("Greek", "Κάθε αίτημα δεσμεύει τα διακριτικά του πριν εκτελεστεί και τα υπόλοιπα επιστρέφονται. "),
    ("Hebrew", "כל בקשה שומרת את האסימונים שלה לפני הריצה, והיתרה מוחזרת בסוף. "),
    ("Arabic", "يحجز كل طلب رموزه قبل التنفيذ، ويعاد ما تبقى منها في النهاية. "),
    ("Hindi", "हर अनुरोध चलने से पहले अपने टोकन सुरक्षित करता है और बचे हुए अंत में लौटा दिए जाते हैं। "),
    ("Tamil", "ஒவ்வொரு கோரிக்கையும் இயங்கும் முன் தனது குறியீடுகளை ஒதுக்கிக் கொள்கிறது. "),
    ("Thai", "คำขอแต่ละรายการจะจองโทเค็นก่อนทำงาน และส่วนที่เหลือจะถูกคืนในตอนท้าย "),
    ("Chinese", "每个请求在运行之前先预留自己的令牌，结束时退还没有用完的部分。"),
    ("Japanese", "各リクエストは実行前にトークンを予約し、残りは終了時に返却されます。"),
    ("Korean", "각 요청은 실행되기 전에 토큰을 예약하고 남은 것은 마지막에 돌려받습니다. "),
];
