#include "job/checkpoint_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/counted.h"
#include "base/text.h"
#include "job/checkpoint_description.h"

namespace passel::job {
namespace {

std::vector<WordDifference> DifferentWords(const StoredTensors& one, const StoredTensors& two) {
  std::map<std::string, WordDifference> words;
  for (const auto& [place, text] : one.Words().Leaves()) words[place].one = text;
  for (const auto& [place, text] : two.Words().Leaves()) words[place].two = text;
  std::vector<WordDifference> different;
  for (auto& [place, word] : words) {
    if (word.one == word.two) continue;
    word.name = place.substr(1);
    different.push_back(std::move(word));
  }
  return different;
}

// REQUIRES: the same shape.
Status CompareValues(const StoredTensors& one, const StoredTensors::Tensor& of_one,
                     const StoredTensors& two, const StoredTensors::Tensor& of_two,
                     TensorDifference* difference) {
  double squares = 0, squares_of_one = 0;
  bool comparable = true;  // all differences are numbers
  std::vector<float> others;
  const Status read =
      one.ReadAll(of_one, [&](std::uint64_t first, std::span<const float> values) -> Status {
        others.resize(values.size());
        PASSEL_RETURN_IF_ERROR(two.Read(of_two, first, others));
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double a = values[i], b = others[i];
          squares_of_one += a * a;
          if (std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(others[i])) {
            continue;
          }
          ++difference->different;
          const double distance = std::abs(a - b);
          comparable = comparable && std::isfinite(distance);
          difference->most = std::max(difference->most, distance);
          squares += distance * distance;
        }
        return {};
      });
  if (!read.ok() || difference->different == 0) return read;
  if (!comparable) difference->most = NAN;
  difference->relative = std::sqrt(squares / squares_of_one);
  return {};
}

// "0.5", or "-" for nothing.
std::string Shown(const std::string& text) { return text.empty() ? "-" : Printable(text, 256); }

std::string Line(const TensorDifference& t) {
  const std::string shape = t.shape_one == t.shape_two
                                ? t.shape_one
                                : fmt::format("{} / {}", Shown(t.shape_one), Shown(t.shape_two));
  std::string line = fmt::format("{:<24} {:>20}", t.name, shape);
  if (t.shape_one.empty() || t.shape_two.empty()) {
    return line + fmt::format("  only in the {}\n", t.shape_one.empty() ? "second" : "first");
  }
  if (t.shape_one != t.shape_two) return line + "  other shapes\n";
  if (t.Same()) return line + "  the same\n";
  return line + fmt::format("  {:>10} {:>12.5g} {:>12.5g}\n", t.different, t.most, t.relative);
}

}  // namespace

bool StoredDifference::Same() const {
  return words.empty() && std::ranges::all_of(tensors, &TensorDifference::Same);
}

Result<StoredDifference> FindDifferences(const StoredTensors& one, const StoredTensors& two,
                                         Compare what) {
  StoredDifference difference{one.name(), two.name(), what, {}, {}};
  if (what == Compare::kAll) difference.words = DifferentWords(one, two);
  const auto compared = [&](const StoredTensors::Tensor& tensor) {
    return what == Compare::kAll || tensor.slot == 0;
  };
  for (const StoredTensors::Tensor& tensor : one.tensors()) {
    if (!compared(tensor)) continue;
    const StoredTensors::Tensor* const other = two.Find(tensor.name);
    TensorDifference t;
    t.name = tensor.name;
    t.shape_one = ShapeText(tensor.shape);
    if (other != nullptr) t.shape_two = ShapeText(other->shape);
    if (t.shape_one == t.shape_two) {
      PASSEL_RETURN_IF_ERROR(CompareValues(one, tensor, two, *other, &t));
    }
    difference.tensors.push_back(std::move(t));
  }
  for (const StoredTensors::Tensor& tensor : two.tensors()) {
    if (!compared(tensor) || one.Find(tensor.name) != nullptr) continue;
    TensorDifference& t = difference.tensors.emplace_back();
    t.name = tensor.name;
    t.shape_two = ShapeText(tensor.shape);
  }
  return difference;
}

std::string ToText(const StoredDifference& d) {
  std::string text;
  if (!d.words.empty()) {
    text += fmt::format("{:<32} {:<30} {}\n", "WORD", d.one, d.two);
    for (const WordDifference& word : d.words) {
      text += fmt::format("{:<32} {:<30} {}\n", Printable(word.name, 64), Shown(word.one),
                          Shown(word.two));
    }
    text += "\n";
  }
  text += fmt::format("{:<24} {:>20}  {:>10} {:>12} {:>12}\n", "TENSOR", "SHAPE", "DIFFERENT",
                      "BY AT MOST", "RELATIVE");
  for (const TensorDifference& t : d.tensors) text += Line(t);
  const auto same = std::ranges::count_if(d.tensors, &TensorDifference::Same);
  text += fmt::format("\n{} of {} {} the same", same, Counted(d.tensors.size(), "tensor"),
                      d.tensors.size() == 1 ? "is" : "are");
  if (d.compared == Compare::kAll) {
    text += fmt::format("; {} differ{}", Counted(d.words.size(), "word"),
                        d.words.size() == 1 ? "s" : "");
  }
  return text + "\n";
}

Json ToJson(const StoredDifference& d) {
  Json words = Json::MakeList(), tensors = Json::MakeList();
  const auto there = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  for (const WordDifference& word : d.words) {
    words.Add({{"word", word.name}, {"one", there(word.one)}, {"two", there(word.two)}});
  }
  for (const TensorDifference& t : d.tensors) {
    tensors.Add({{"name", t.name},
                 {"shapes", Json::MakeList(there(t.shape_one), there(t.shape_two))},
                 {"same", t.Same()},
                 {"different", t.different},
                 {"by_at_most", t.most},
                 {"relative", t.relative}});
  }
  return {{"one", d.one},
          {"two", d.two},
          {"same", d.Same()},
          {"words", d.compared == Compare::kAll ? std::move(words) : Json()},
          {"tensors", std::move(tensors)}};
}

}  // namespace passel::job
