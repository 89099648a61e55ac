// A file as torch.save wrote before PyTorch 1.6.
#pragma once

#include <string>

namespace ddp::test {

/// {'a': three floats, 'tied': the second of them, 'view': the third through a view of the storage, 'b': two bytes}.
inline std::string legacy_file() {
  using namespace std::string_literals;
  const auto tensor = [](const std::string& type, const std::string& key, const std::string& elements,
                         const std::string& view, const std::string& offset, const std::string& size) {
    return "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\n"s + type + "\nX\1\0\0\0"s + key +
           "X\3\0\0\0cpuK"s + elements + view + "tQK" + offset + "K" + size + "\x85K\1\x85\x89}tR";
  };
  const auto header =
      "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."
      "\x80\2M\xe9\3."
      "\x80\2}X\x0d\0\0\0little_endian\x88s."s;
  const auto pickle = "\x80\2}(X\1\0\0\0a"s + tensor("FloatStorage", "7", "\3", "N", "\0"s, "\3") + "X\4\0\0\0tied"s +
                      tensor("FloatStorage", "7", "\3", "N", "\1", "\1") + "X\4\0\0\0view"s +
                      tensor("FloatStorage", "7", "\3", "X\1\0\0\0vK\2K\1\x87"s, "\0"s, "\1") + "X\1\0\0\0b"s +
                      tensor("ByteStorage", "8", "\2", "N", "\0"s, "\2") + "u.";
  const auto keys =
      "\x80\2](X\1\0\0\0"
      "7X\1\0\0\0"
      "8e."s;
  return header + pickle + keys + "\3\0\0\0\0\0\0\0aaaabbbbcccc\2\0\0\0\0\0\0\0xy"s;
}

}  // namespace ddp::test
