// Megatron-LM's .idx files of tokens.
#include "data/formats/token_index.h"

#include <cstring>

#include "tests/data/fuzz/reader.h"

namespace {

template <typename Value>
std::string raw(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::string index(char code, const std::vector<int32_t>& lengths, int64_t item, const std::vector<int64_t>& documents) {
  std::string text("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
  text += code;
  std::vector<int64_t> pointers;
  int64_t position = 0;
  for (const int32_t length : lengths) {
    pointers.push_back(position);
    position += item * length;
  }
  return text + raw<uint64_t>({lengths.size(), documents.size()}) + raw(lengths) + raw(pointers) + raw(documents);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {index('\10', {3, 0, 5}, 2, {0, 1, 3}), index('\4', {7}, 4, {0, 1}), index('\5', {}, 8, {0}),
          index('\1', {2, 2, 2, 2}, 1, {0, 2, 2, 4})};
}

std::vector<std::string> fuzz::dictionary() {
  return {};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  const std::filesystem::path path = "tokens.idx";
  return may_refuse(path, [&] {
    const ddp::TokenIndex index = ddp::read_token_index(bytes, path);
    require(index.token_bytes == 1 || index.token_bytes == 2 || index.token_bytes == 4 || index.token_bytes == 8,
            "a token has a size");
    int64_t before = 0;
    for (const int64_t end : index.document_ends) {
      require(end > before, "documents are not empty");
      before = end;
    }
    require(before == index.tokens, "the last document ends where the tokens end");
  });
}
