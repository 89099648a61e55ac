// Reads archives of samples, one command a line on standard input (a tab between words):
//   braces  PATTERN        prints the addresses, tabs between them
//   read    URL            prints a line for each sample: its key, and of each file suffix, size and CRC-32
//   count   URL            prints the number of samples
//   index   ARCHIVE N      prints the key of sample N, found by the archive's index
// Each answer ends with a line "end", or "error: ...".
#include <zlib.h>

#include <iostream>
#include <limits>
#include <sstream>
#include <vector>

#include "data/formats/shard_format.h"

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 24;

void answer(const std::vector<std::string>& words) {
  const std::string& command = words.at(0);
  if (command == "braces") {
    const char* separator = "";
    for (const auto& name : ddp::expand_braces(words.at(1))) {
      std::cout << separator << name;
      separator = "\t";
    }
    std::cout << '\n';
    return;
  }
  ddp::ShardReader reader(words.at(1), kMaxFileBytes);
  if (command == "index") {
    const auto index = ddp::read_shard_index(words.at(1));
    if (!index || !reader.seek(index->headers.at(std::stoul(words.at(2))))) throw std::runtime_error("no such place");
    std::cout << reader.next(false).value().key << '\n';
    return;
  }
  const bool with_content = command == "read";
  int64_t count = 0;
  while (const auto sample = reader.next(with_content)) {
    ++count;
    if (!with_content) continue;
    std::cout << sample->key;
    for (const auto& file : sample->files) {
      std::cout << '\t' << file.suffix << '\t' << file.content.size() << '\t'
                << crc32_z(0, file.content.data(), file.content.size());
    }
    std::cout << '\n';
  }
  if (!with_content) std::cout << count << '\n';
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words;
    std::istringstream text(line);
    for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
    try {
      answer(words);
      std::cout << "end" << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
  return 0;
}
