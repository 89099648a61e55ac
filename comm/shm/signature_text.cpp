#include "comm/shm/signature_text.h"

namespace ddp::shm {
namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "nothing";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduce:
      return "reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kGather:
      return "gather";
    case Kind::kScatter:
      return "scatter";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBarrier:
      return "barrier";
  }
  return "an unknown operation";
}

// "sum of float32", in the order of Operator and Number.
std::string arithmetic_of(const Signature& signature) {
  constexpr const char* kNames[] = {"sum", "average", "product", "minimum", "maximum", "and", "or", "xor"};
  constexpr const char* kNumbers[] = {"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"};
  return std::string(kNames[signature.op % 8]) + " of " + kNumbers[signature.number % 8];
}

}  // namespace

std::string text_of(const Signature& signature) {
  const auto kind = static_cast<Kind>(signature.kind);
  std::string text = name_of(kind);
  if (kind == Kind::kBarrier) return text;
  if (kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    text += " (" + arithmetic_of(signature) + ")";
  }
  text += " of " + std::to_string(signature.bytes) + " bytes";
  const bool has_root =
      kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather || kind == Kind::kScatter;
  if (has_root) text += ", root " + std::to_string(signature.root);
  return text;
}

}  // namespace ddp::shm
