//! A small plugin: counting words, work that takes its time, and failing on purpose.

use plugin_sdk::{Context, Failure, Node, Param, Plugin};
use serde::{Deserialize, Serialize};
use std::{process::ExitCode, time::Duration};

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
struct Counted {
    words: usize,
    characters: usize,
    uppercase: String,
}

async fn count(input: Text, _context: Context) -> Result<Counted, Failure> {
    let Text { text } = input;
    Ok(Counted {
        words: text.split_whitespace().count(),
        characters: text.chars().count(),
        uppercase: text.to_uppercase(),
    })
}

#[derive(Deserialize)]
struct Pause {
    milliseconds: u64,
    #[serde(default)]
    value: Option<plugin_sdk::Json>,
}

#[derive(Serialize)]
struct Paused {
    value: Option<plugin_sdk::Json>,
}

/// Works in a hundred parts, so that progress can be seen and a canceled run stops it soon.
async fn slow(input: Pause, context: Context) -> Result<Paused, Failure> {
    let part = Duration::from_millis(input.milliseconds) / 100;
    for percent in 0..100 {
        context.progress(f64::from(percent) / 100.0, format!("{percent} %"));
        tokio::select! {
            () = tokio::time::sleep(part) => {}
            () = context.cancelled() => return Err(Failure::new("работа прервана: её результата больше не ждут")),
        }
    }
    Ok(Paused { value: input.value })
}

#[derive(Deserialize)]
struct Complaint {
    message: String,
}

async fn fail(input: Complaint, _context: Context) -> Result<(), Failure> {
    Err(Failure::new(input.message).code("failed_on_purpose").retryable(false))
}

#[tokio::main]
async fn main() -> ExitCode {
    Plugin::new("text-tools", "0.1.0")
        .label("Работа с текстом")
        .description("Подсчёт слов и вспомогательные узлы для проверки процессов.")
        .node(
            Node::new("plugin.text-tools.count", "Подсчёт слов")
                .description("Считает слова и знаки текста.")
                .help("Словом считается всё, что отделено пробелами. Знаки считаются как символы Unicode.")
                .section(["Текст"])
                .input(Param::textarea("text").label("Текст").port().required().primary())
                .output(Param::number("words").label("Слова"))
                .output(Param::number("characters").label("Знаки"))
                .output(Param::textarea("uppercase").label("Прописными"))
                .run(count),
        )
        .node(
            Node::new("plugin.text-tools.slow", "Долгая работа")
                .description("Работает заданное время и передаёт значение дальше.")
                .help("Сообщает ход работы в процентах. Отмена запуска прерывает узел.")
                .section(["Текст", "Проверка"])
                .input(Param::number("milliseconds").label("Время, мс").default(1000).can_be_port().primary())
                .input(Param::textarea("value").label("Значение").port())
                .output(Param::textarea("value").label("Значение"))
                .run(slow),
        )
        .node(
            Node::new("plugin.text-tools.fail", "Ошибка")
                .description("Завершает шаг ошибкой с заданным текстом.")
                .help("Нужен, чтобы проверить, что процесс делает при ошибке шага.")
                .section(["Текст", "Проверка"])
                .input(Param::string("message").label("Текст ошибки").port().required().primary())
                .run(fail),
        )
        .serve_from_env()
        .await
}
