// A model without anything that does not shape its graph, made in the browser before the model is sent.
// costmodel/anonymise.py follows the same rules and gives their reasons; a test compares the results byte by byte.

const OMITTED = "costmodel:omitted"; // the location of values that were removed
const MAX_DEPTH = 64;

// What happens to a field that is kept: its bytes stay, or it is a name, or a name if its domain is private, or the
// symbol of a dimension; otherwise it is the name of the message in it. Fields that are not listed are removed.
const KEEP = Symbol("keep"), NAME = Symbol("name"), PRIVATE = Symbol("private name"), SYMBOL = Symbol("symbol");
const MESSAGES = {
  model: { 1: KEEP, 7: "graph", 8: "opset", 25: "function" },
  opset: { 1: PRIVATE, 2: KEEP },
  graph: { 1: "node", 2: NAME, 5: "tensor", 11: "value", 12: "value", 13: "value", 15: "sparse" },
  function: { 1: PRIVATE, 4: NAME, 5: NAME, 6: NAME, 7: "node", 9: "opset", 10: PRIVATE, 11: "attribute", 12: "value", 13: NAME },
  node: { 1: NAME, 2: NAME, 3: NAME, 4: PRIVATE, 5: "attribute", 7: PRIVATE, 8: NAME },
  attribute: { 1: PRIVATE, 2: KEEP, 3: KEEP, 4: KEEP, 5: "tensor", 6: "graph", 7: KEEP, 8: KEEP, 9: KEEP, 10: "tensor",
    11: "graph", 14: "type", 15: "type", 20: KEEP, 21: NAME, 22: "sparse", 23: "sparse" },
  value: { 1: NAME, 2: "type" },
  type: { 1: "array", 4: "element", 5: "map", 8: "array", 9: "element" },
  array: { 1: KEEP, 2: "shape" },
  element: { 1: "type" },
  map: { 1: KEEP, 2: "type" },
  shape: { 1: "dimension" },
  dimension: { 1: KEEP, 2: SYMBOL },
  tensor: { 1: KEEP, 2: KEEP, 4: KEEP, 5: KEEP, 6: KEEP, 7: KEEP, 8: NAME, 9: KEEP, 10: KEEP, 11: KEEP },
  sparse: { 1: "nothing", 2: "nothing", 3: KEEP },
  nothing: { 2: KEEP, 8: NAME },
};
const DOMAIN = { opset: 1, function: 10, node: 7 };

const PUBLIC_DOMAIN = /^((ai\.onnx|com\.microsoft)(\.[^]*)?)?$/;
const BATCH = /^(n|b|bs|batch.*|.*batch|.*batch_size)$/i;
const TEXT_SETTINGS = new Set(`activation activation_type activations aggregate_function approximate attention_mode
  auto_pad auxiliary_cache_layout beta_activation case_change_action cast_to coordinate_transformation_mode direction
  equation gate_activation k_cache_dtype k_quant_type keep_aspect_ratio_policy kernel_type kv_cache_layout map_form
  metric mode nearest_mode nodes_modes norm padding_mode pixel_format policy_mode post_transform quant_type reduction
  round_mode selected_kv_source to update_rule v_cache_dtype v_quant_type`.split(/\s+/));
const LIST_SETTINGS = new Set(["activation_alpha", "activation_beta", "activation_params", "scales"]);
const SHAPE_INPUTS = new Map([["ConstantOfShape", 0], ["Range", 0], ...["AffineGrid", "CenterCropPad", "Col2Im",
  "CropAndResize", "Expand", "Pad", "Reshape", "Resize", "Slice", "Split", "Tile", "Upsample"].map((name) => [name, 1])]);
const SHAPE_ELEMENTS = 16, WHOLE_ELEMENTS = 64, SHARED_ELEMENTS = 8;
const STRING = 8, WHOLE_TYPES = new Set([7, 9]);
const WIDTHS = { 1: 4, 4: 2, 5: 2, 6: 4, 7: 8, 10: 2, 11: 8, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2 };
const ONES = { 1: [0x3f800000, 0], 10: [0x3c00, 0], 11: [0, 0x3ff00000], 16: [0x3f80, 0] }; // low and high bits
const RAW_DATA = 9, LISTS = { 4: 4, 5: 0, 7: 0, 10: 8, 11: 0 }; // bytes of a number; 0 where that varies

const NUMBERED = /(?<![A-Za-z0-9])(?:batch_)?n(\d+)(?![A-Za-z0-9])/g;

/** What may be sent of a serialised model, and its original names; throws where the bytes are no model. */
export function strip(data) {
  const walk = new Walk(data);
  walk.findShapes();
  const parts = walk.clean("model", 0, data.length, {}, 0);
  return new Stripped(parts, [...walk.numbers.keys()]);
}

class Stripped {
  constructor(parts, names) {
    this.parts = parts;
    this.names = names;
  }

  /** What the service calls an input of the model. */
  number(name) {
    const place = this.names.indexOf(name);
    return place < 0 ? name : `n${place}`;
  }

  /** What the service says, with the original names. */
  restore(text) {
    return text.replace(NUMBERED, (found, number) => this.names[number] ?? found);
  }
}

class Walk {
  constructor(data) {
    this.data = data;
    this.numbers = new Map();
    this.shaping = new Set();
    this.values = new Map();
  }

  /** Find the names of the values that shapes are computed from. */
  findShapes() {
    const makers = new Map(), waiting = [];
    for (const { type, inputs, outputs } of this.nodes("model", 0, this.data.length, 0)) {
      for (const name of outputs) makers.set(name, { type, inputs });
      waiting.push(...inputs.slice(SHAPE_INPUTS.get(type) ?? inputs.length));
    }
    while (waiting.length) {
      const name = waiting.pop();
      if (this.shaping.has(name)) continue;
      this.shaping.add(name);
      const maker = makers.get(name);
      if (maker && maker.type !== "Shape" && maker.type !== "Size") waiting.push(...maker.inputs);
    }
  }

  *nodes(kind, begin, stop, depth) {
    const fields = this.fields(begin, stop, depth);
    if (kind === "node") {
      const texts = (number) => fields.filter((field) => field.number === number).map((field) => this.text(field));
      yield { type: texts(4).at(-1) ?? "", inputs: texts(1), outputs: texts(2) };
    }
    for (const { number, body, end } of fields) {
      const inner = MESSAGES[kind][number];
      if (body !== null && ["graph", "function", "node", "attribute"].includes(inner)) yield* this.nodes(inner, body, end, depth + 1);
    }
  }

  /** One message, cleaned, as parts. */
  clean(kind, begin, stop, context, depth) {
    const all = this.fields(begin, stop, depth);
    const rules = MESSAGES[kind];
    let { isPrivate = false, shapes = false } = context;
    if (kind in DOMAIN) isPrivate = !PUBLIC_DOMAIN.test(this.last(all, DOMAIN[kind]));
    if (kind === "node") shapes = all.some((field) => field.number === 2 && this.shaping.has(this.text(field)));
    let kept = all.filter(({ number }) => number in rules);
    let marker = [];
    if (kind === "tensor") [kept, marker] = this.limitValues(kept, all, shapes);
    if (kind === "attribute") kept = this.limitAttribute(kept, isPrivate, shapes);
    if (kind === "nothing") marker = [Uint8Array.of(8, 0)]; // no elements
    const parts = kind === "nothing" ? marker : [];
    for (const field of kept) {
      const rule = rules[field.number];
      if (field.made) parts.push(field.made);
      else if (rule === NAME || (rule === PRIVATE && isPrivate)) parts.push(entry(field.number, this.number(this.text(field))));
      else if (rule === SYMBOL) parts.push(entry(field.number, (BATCH.test(this.text(field)) ? "batch_" : "") + this.number(this.text(field))));
      else if (rule === KEEP || rule === PRIVATE) parts.push(this.data.subarray(field.start, field.end));
      else if (field.body !== null) {
        const inner = this.clean(rule, field.body, field.end, { isPrivate, shapes }, depth + 1);
        parts.push(varint(field.number * 8 + 2), varint(inner.reduce((sum, part) => sum + part.length, 0)), ...inner);
      }
    }
    return kind === "tensor" ? [...parts, ...marker] : parts;
  }

  /** The fields of a tensor that stay, and what says that its values are gone. */
  limitValues(kept, all, shapes) {
    const type = this.scalar(all, 2), isNoNumber = ({ number }) => number !== RAW_DATA && !(number in LISTS);
    if (type === STRING) {
      let place = 0;
      return [kept.filter(isNoNumber).map((field) => (field.number === 6 ? { ...field, made: entry(6, String(place++)) } : field)), []];
    }
    kept = kept.filter(({ number }) => number !== 6);
    let count = 0;
    for (const { number, body, end } of kept) {
      if (number === RAW_DATA) count += Math.floor((end - body) / (WIDTHS[type] ?? 1));
      else if (number in LISTS) count += body === null ? 1 : LISTS[number] ? (end - body) / LISTS[number] : this.varints(body, end).length;
    }
    let most = this.dims(all).every((size) => size === 1) ? 2 : 0; // a complex number is two
    if (WHOLE_TYPES.has(type)) most = WHOLE_ELEMENTS;
    else if (shapes || this.shaping.has(this.last(all, 8))) most = SHAPE_ELEMENTS;
    const external = this.scalar(all, 14) === 1;
    if (count <= most && !external) return [kept, []];
    if (count <= SHARED_ELEMENTS && !external) return [this.countValues(kept.filter(isNoNumber), kept, type, count), []];
    const location = [...entry(1, "location"), ...entry(2, OMITTED)];
    return [kept.filter(isNoNumber),
      [Uint8Array.from([...varint(13 * 8 + 2), ...varint(location.length), ...location]), Uint8Array.of(14 * 8, 1)]];
  }

  /** The fields of a small tensor with values that say only which tensors are equal. */
  countValues(others, kept, type, count) {
    const width = WIDTHS[type] ?? 1, [low, high] = ONES[type] ?? [1, 0];
    const values = kept.filter(({ number }) => number === RAW_DATA || number in LISTS);
    const key = [type, ...this.dims(kept), ...values.map(({ number, start, end }) => `${number}:${this.data.subarray(start, end)}`)].join(" ");
    if (!this.values.has(key)) this.values.set(key, this.values.size);
    const one = new Uint8Array(16), view = new DataView(one.buffer);
    view.setUint32(0, low + (this.values.get(key) % 2 ** Math.min(8 * width - 2, 30)), true);
    view.setUint32(4, high, true);
    const raw = repeated(one.subarray(0, width), count);
    const made = Uint8Array.from([...varint(RAW_DATA * 8 + 2), ...varint(raw.length), ...raw]);
    return [...others, { number: RAW_DATA, made }].sort((one, other) => one.number - other.number);
  }

  /** The fields of an attribute, its text and lists of fractions numbered or zero where they are data. */
  limitAttribute(kept, isPrivate, shapes) {
    const name = this.last(kept, 1);
    const text = !isPrivate && TEXT_SETTINGS.has(name);
    const most = shapes || (!isPrivate && LIST_SETTINGS.has(name)) ? SHAPE_ELEMENTS : 1;
    const count = (number, of) => kept.filter((field) => field.number === number).reduce((sum, field) => sum + of(field), 0);
    const floats = count(7, ({ body, end }) => (body === null ? 1 : (end - body) / 4));
    const ints = name === "value_ints" ? count(8, ({ body, end }) => (body === null ? 1 : this.varints(body, end).length)) : 0;
    let place = 0;
    const made = ({ number, body, end }) => {
      if (number === 4 && !text) return entry(4, "");
      if (number === 9 && !text) return entry(9, String(place++));
      if (number === 7 && floats > most) return repeated([7 * 8 + 5, 0, 0, 0, 0], body === null ? 1 : (end - body) / 4);
      if (number === 8 && ints > WHOLE_ELEMENTS) return repeated([8 * 8, 0], body === null ? 1 : this.varints(body, end).length);
      return undefined;
    };
    return kept.map((field) => ({ ...field, made: made(field) }));
  }

  number(name) {
    if (!name) return "";
    if (!this.numbers.has(name)) this.numbers.set(name, this.numbers.size);
    return `n${this.numbers.get(name)}`;
  }

  // The wire format

  /** The fields of a message by number: where the tag and the content start (null for a scalar), and where it ends. */
  fields(position, stop, depth) {
    if (depth > MAX_DEPTH) throw new Error("subgraphs are nested too deeply");
    const found = [];
    while (position < stop) {
      const start = position;
      let tag, body = null;
      [tag, position] = this.varint(position, stop);
      const number = Math.floor(tag / 8), wire = tag % 8;
      if (number === 0) throw new Error("a field has the number 0");
      if (wire === 0) [, position] = this.varint(position, stop);
      else if (wire === 1) position += 8;
      else if (wire === 5) position += 4;
      else if (wire === 2) {
        let length;
        [length, body] = this.varint(position, stop);
        position = body + length;
      } else throw new Error(`a field has the wire type ${wire}`);
      if (position > stop) throw new Error("the data ends in the middle of a field");
      found.push({ number, start, body, end: position });
    }
    return found.sort((one, other) => one.number - other.number);
  }

  varint(position, stop) {
    let value = 0, scale = 1;
    for (let bytes = 0; bytes < 10; bytes++) {
      if (position >= stop) throw new Error("the data ends in the middle of a number");
      const byte = this.data[position++];
      value += (byte & 0x7f) * scale; // exact below 2^53; what is larger is compared, and never used as a size
      if (byte < 0x80) return [value, position];
      scale *= 128;
    }
    throw new Error("a number is longer than 64 bits");
  }

  varints(position, stop) {
    const found = [];
    while (position < stop) {
      const [value, next] = this.varint(position, stop);
      found.push(value);
      position = next;
    }
    return found;
  }

  text({ body, end }) {
    return body === null ? "" : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.data.subarray(body, end));
  }

  /** The text of a field that is there once. */
  last(fields, number) {
    const field = fields.findLast((field) => field.number === number);
    return field ? this.text(field) : "";
  }

  /** The number in a field that is there once. */
  scalar(fields, number) {
    const field = fields.findLast((field) => field.number === number && field.body === null);
    return field ? this.varint(this.varint(field.start, field.end)[1], field.end)[0] : 0;
  }

  dims(fields) {
    return fields.filter(({ number }) => number === 1).flatMap(({ start, body, end }) =>
      body === null ? [this.varint(this.varint(start, end)[1], end)[0]] : this.varints(body, end));
  }
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

function entry(number, content) {
  const encoded = new TextEncoder().encode(content);
  return Uint8Array.from([...varint(number * 8 + 2), ...varint(encoded.length), ...encoded]);
}

function repeated(bytes, count) {
  const out = new Uint8Array(bytes.length * count);
  for (let place = 0; place < out.length; place++) out[place] = bytes[place % bytes.length];
  return out;
}
