//! A JSON parser and writer.
//!
//! The original reads its configuration with Go's decoder, so this parser accepts the same input: invalid UTF-8 and
//! lone surrogates become U+FFFD, and keys may be repeated. An object is therefore a list of pairs in the order of the
//! text. Numbers are kept as text; the reader converts them.

use std::fmt::Write as _;

/// Maximum nesting depth, because every level uses stack.
const MAX_DEPTH: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// The name of this type of value for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// The document with line breaks, indented by four spaces per level.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out
    }

    /// The document on one line.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    fn write(&self, out: &mut String, level: Option<usize>) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(text) => out.push_str(text),
            Value::Text(text) => quote(text, out),
            Value::List(items) => write_all(out, level, ['[', ']'], items, Value::write),
            Value::Object(pairs) => write_all(out, level, ['{', '}'], pairs, |(key, value), out, level| {
                quote(key, out);
                out.push_str(if level.is_some() { ": " } else { ":" });
                value.write(out, level);
            }),
        }
    }
}

fn write_all<T>(
    out: &mut String,
    level: Option<usize>,
    brackets: [char; 2],
    items: &[T],
    each: impl Fn(&T, &mut String, Option<usize>),
) {
    let inner = level.map(|level| level + 1);
    out.push(brackets[0]);
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        break_line(out, inner);
        each(item, out, inner);
    }
    if !items.is_empty() {
        break_line(out, level);
    }
    out.push(brackets[1]);
}

fn break_line(out: &mut String, level: Option<usize>) {
    if let Some(level) = level {
        out.push('\n');
        for _ in 0..level {
            out.push_str("    ");
        }
    }
}

/// Append a JSON string.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 || control == '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Parses a document; an error says what is wrong and where.
pub fn parse(document: &[u8]) -> Result<Value, String> {
    let mut parser = Parser { document, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at < document.len() {
        return Err(parser.unexpected("after the document"));
    }
    Ok(value)
}

struct Parser<'a> {
    document: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.document.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, place: &str) -> String {
        match self.peek() {
            Some(byte) => format!("unexpected {:?} {place}, at byte {}", byte as char, self.at),
            None => "the document ends too early".to_string(),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value, String> {
        for (word, value) in [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))] {
            if self.document[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("where a value begins"))
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        let mut pairs = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(pairs));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("where a key begins"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after a key"));
            }
            self.at += 1;
            pairs.push((key, self.value(depth + 1)?));
            if self.is_last(b'}')? {
                return Ok(Value::Object(pairs));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.is_last(b']')? {
                return Ok(Value::List(items));
            }
        }
    }

    /// Step over a comma (more follows) or the closing bracket.
    fn is_last(&mut self, closing: u8) -> Result<bool, String> {
        self.skip_space();
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == closing => {
                self.at += 1;
                return Ok(true);
            }
            _ => return Err(self.unexpected("after a value")),
        }
        Ok(false)
    }

    fn digits(&mut self) -> Result<(), String> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected("in a number")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Value::Number(String::from_utf8_lossy(&self.document[start..self.at]).into_owned()))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut text = Vec::new();
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&text).into_owned());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let character = self.escape()?;
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if byte >= 0x20 => {
                    self.at += 1;
                    text.push(byte);
                }
                _ => return Err(self.unexpected("in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let character = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => byte as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected("after a backslash")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode(&mut self) -> Result<char, String> {
        let first = self.four_digits()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        if first < 0xdc00 && self.document[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| (byte as char).to_digit(16)) else {
                return Err(self.unexpected("in a \\u escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        parse(text.as_bytes()).unwrap().compact()
    }

    #[test]
    fn documents_survive_a_round() {
        for text in
            [r#"{"a":[1,-2.5,3e+7,true,false,null,{}],"b":[],"a":"x"}"#, r#""\"\\\n\r\t\u0001é漢""#, "[[[]]]", "0"]
        {
            assert_eq!(round(text), text);
        }
        assert_eq!(round(" { \"a\" :\t1 ,\r\n\"b\" : [ ] } "), r#"{"a":1,"b":[]}"#);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[1",
            "{nope",
            "{\"a\"}",
            "{\"a\":}",
            "[1,]",
            "{\"a\":1,}",
            "tru",
            "01",
            "1.",
            "-",
            ".5",
            "1e",
            "+1",
            "\"\u{1}\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"abc",
            "[] []",
            "'a'",
            "\u{feff}{}",
            "NaN",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn broken_characters_become_replacements() {
        assert_eq!(parse(b"\"a\xffb\"").unwrap(), Value::text("a\u{fffd}b"));
        assert_eq!(parse(br#""\ud800""#).unwrap(), Value::text("\u{fffd}"));
        assert_eq!(parse(br#""\ud800\u0041""#).unwrap(), Value::text("\u{fffd}A"));
        assert_eq!(parse(br#""\udc00\ud83d\ude00""#).unwrap(), Value::text("\u{fffd}\u{1f600}"));
    }

    #[test]
    fn depth_has_an_end() {
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
        let fine = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(parse(fine.as_bytes()).is_ok());
    }

    #[test]
    fn people_get_four_spaces() {
        let value = parse(br#"{"a":[1,{"b":2}],"c":{}}"#).unwrap();
        let expected =
            "{\n    \"a\": [\n        1,\n        {\n            \"b\": 2\n        }\n    ],\n    \"c\": {}\n}";
        assert_eq!(value.pretty(), expected);
    }
}
