#include "launcher/observe/watch/pickle.h"

#include <nlohmann/json.hpp>

#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>

namespace launcher {
namespace {

using nlohmann::ordered_json;

void append_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append_text(std::string& out, const std::string& text) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) throw std::length_error("text of 4 GiB");
  out += 'X';  // BINUNICODE
  append_number(out, text.size(), 4);
  out += text;
}

void append_integer(std::string& out, const ordered_json& value) {
  out += '\x8a';  // LONG1, little endian and signed; nine bytes hold what has no sign as well
  out += '\x09';
  const bool is_negative = value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  append_number(
      out,
      value.is_number_unsigned() ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>()),
      8);
  out += is_negative ? '\xff' : '\x00';
}

void append(std::string& out, const ordered_json& value) {
  if (value.is_null()) {
    out += 'N';
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_integer()) {
    append_integer(out, value);
  } else if (value.is_number_float()) {
    const auto bits = std::bit_cast<std::uint64_t>(value.get<double>());
    out += 'G';
    for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i) & 0xff);
  } else if (value.is_string()) {
    append_text(out, value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    out += "](";
    for (const auto& item : value) append(out, item);
    out += 'e';
  } else {
    out += "}(";
    for (const auto& item : value.items()) {
      append_text(out, item.key());
      append(out, item.value());
    }
    out += 'u';
  }
}

}  // namespace

std::string pickle_of(const ordered_json& value) {
  std::string out = "\x80\x02";
  append(out, value);
  return out + ".";
}

}  // namespace launcher
