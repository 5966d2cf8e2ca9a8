// An ONNX file without its weights, made in the browser: the same walk as costmodel/skim.py, which says why.

const OMITTED = "costmodel:omitted";
const FLOAT_BYTES = 1024;
const INTEGER_BYTES = 1 << 20;
const INTEGERS = new Set([6, 7, 9]); // int32, int64, bool
const PAYLOADS = new Set([4, 5, 7, 9, 10, 11]);
const DATA_TYPE = 2, EXTERNAL_DATA = 13, DATA_LOCATION = 14, EXTERNAL = 1;
const MAX_DEPTH = 64;

// Fields that can lead to a tensor, by message.
const TENSOR = {};
const GRAPH = { 5: TENSOR };
const ATTRIBUTE = { 5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH };
const NODE = { 5: ATTRIBUTE };
GRAPH[1] = NODE;
const MODEL = { 7: GRAPH, 25: { 7: NODE } };

/** The parts of a serialised model without the values of its large tensors; throws where it is none. */
export function skim(data) {
  return walk(data, 0, data.length, MODEL, 0);
}

function walk(data, begin, stop, fields, depth) {
  if (depth > MAX_DEPTH) throw new Error("subgraphs are nested too deeply");
  const kept = [];
  for (const { number, start, body, end } of parts(data, begin, stop)) {
    const inner = fields[number];
    if (inner === undefined || body === null || end - body <= FLOAT_BYTES) {
      kept.push(data.subarray(start, end));
      continue;
    }
    const walked = inner === TENSOR ? tensor(data, body, end) : walk(data, body, end, inner, depth + 1);
    kept.push(varint(number * 8 + 2), varint(walked.reduce((sum, part) => sum + part.length, 0)), ...walked);
  }
  return kept;
}

function tensor(data, begin, stop) {
  let type = 0, payload = 0;
  const kept = [];
  for (const { number, start, body, end } of parts(data, begin, stop)) {
    if (number === DATA_TYPE && body === null) type = readVarint(data, start + 1, end)[0];
    if (PAYLOADS.has(number) && body !== null) payload += end - body;
    else kept.push(data.subarray(start, end));
  }
  if (payload <= (INTEGERS.has(type) ? INTEGER_BYTES : FLOAT_BYTES)) return [data.subarray(begin, stop)];
  const entry = [...text(1, "location"), ...text(2, OMITTED)];
  kept.push(Uint8Array.from([...varint(EXTERNAL_DATA * 8 + 2), ...varint(entry.length), ...entry]));
  kept.push(Uint8Array.from([...varint(DATA_LOCATION * 8), ...varint(EXTERNAL)]));
  return kept;
}

function* parts(data, position, stop) {
  while (position < stop) {
    const start = position;
    let tag, body = null;
    [tag, position] = readVarint(data, position, stop);
    const number = Math.floor(tag / 8), wire = tag % 8;
    if (number === 0) throw new Error("a field has the number 0");
    if (wire === 0) [, position] = readVarint(data, position, stop);
    else if (wire === 1) position += 8;
    else if (wire === 5) position += 4;
    else if (wire === 2) {
      let length;
      [length, body] = readVarint(data, position, stop);
      position = body + length;
    } else throw new Error(`a field has the wire type ${wire}`);
    if (position > stop) throw new Error("the data ends in the middle of a field");
    yield { number, start, body, end: position };
  }
}

function readVarint(data, position, stop) {
  let value = 0, scale = 1;
  for (let bytes = 0; bytes < 10; bytes++) {
    if (position >= stop) throw new Error("the data ends in the middle of a number");
    const byte = data[position++];
    value += (byte & 0x7f) * scale; // sizes stay below 2^53; a larger number is skipped, never used
    if (byte < 0x80) return [value, position];
    scale *= 128;
  }
  throw new Error("a number is longer than 64 bits");
}

function varint(value) {
  const out = [];
  while (value > 0x7f) {
    out.push((value % 128) | 0x80);
    value = Math.floor(value / 128);
  }
  out.push(value);
  return Uint8Array.from(out);
}

function text(number, content) {
  const encoded = new TextEncoder().encode(content);
  return [...varint(number * 8 + 2), ...varint(encoded.length), ...encoded];
}
