"""A small config as YAML."""

BASE = """\
name: base_name
seed: 5
data:
  src_lang: en
  tgt_lang: "no"
  train: [{src: a.en, tgt: a.no}, {tsv: b.tsv}]
  validation: [{src: v.en, tgt: v.no}]
model: {d_model: 64, d_ff: 128, num_heads: 4}
training: {max_steps: 10, max_minutes: 5}
"""
