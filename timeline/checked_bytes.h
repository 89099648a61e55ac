// What a parser reads of a file that may be hostile.
#pragma once

#include <array>
#include <istream>
#include <streambuf>
#include <string>
#include <utility>

#include "timeline/trace_reader.h"

namespace ddp::timelines {

// The bytes of a stream, as long as no string in them is longer than `most`.
class CheckedBytes : public std::streambuf {
 public:
  CheckedBytes(std::istream& from, std::size_t most) : from_(from), most_(most) {}

 protected:
  int_type underflow() override {
    from_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto count = static_cast<std::size_t>(from_.gcount());
    if (count == 0) return traits_type::eof();
    for (std::size_t i = 0; i < count; ++i) look_at(buffer_[i]);
    setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
    return traits_type::to_int_type(buffer_[0]);
  }

 private:
  void look_at(char byte) {
    if (!in_string_) {
      in_string_ = byte == '"';
      length_ = 0;
      return;
    }
    if (++length_ > most_) throw TraceError("a text of more than " + std::to_string(most_) + " bytes is in it");
    if (std::exchange(is_escaped_, false)) return;
    is_escaped_ = byte == '\\';
    in_string_ = byte != '"';
  }

  std::istream& from_;
  std::size_t most_;
  std::array<char, 1 << 16> buffer_{};
  bool in_string_ = false;
  bool is_escaped_ = false;
  std::size_t length_ = 0;
};

}  // namespace ddp::timelines
