import { plainToInstance, TransformationType } from 'class-transformer';
import { defaultMetadataStorage } from 'class-transformer/cjs/storage.js';
import { validate, type ValidationError } from 'class-validator';
import { invalidInputs, type InputFault } from '../core/failure.js';
import type { DtoClass } from './decorators.js';

/**
 * Makes the inputs of a step an instance of the DTO and validates it.
 *
 * Values stay as the platform sent them, also those without a decorator, except where the DTO asks
 * class-transformer for more (`@Type`, `@Transform`). Scalars may reach a plugin as text or typed,
 * and empty or not at all, as the editor stored them: a rule is broken only if no form keeps it.
 *
 * @throws {StepFailure} `invalid_node_input`, which names each wrong field.
 */
export async function readInputs(
  dto: DtoClass | null,
  inputs: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  if (dto === null) return inputs;
  const instance = toInstance(dto, inputs);
  const errors = await check(instance);
  const faults: InputFault[] = [];
  for (const error of errors) {
    if (!(await passesInOtherForm(instance, error))) faults.push(...faultsOf(error, '$.inputs'));
  }
  if (faults.length > 0) throw invalidInputs(faults);
  return instance;
}

function check(instance: object): Promise<ValidationError[]> {
  return validate(instance, { forbidUnknownValues: false, validationError: { target: false, value: false } });
}

/** Initialisers of the class give the values that the platform left out. */
function toInstance(dto: DtoClass, inputs: Record<string, unknown>): Record<string, unknown> {
  const instance = new dto() as Record<string, unknown>;
  for (const key of Object.keys(instance)) {
    if (instance[key] === undefined) delete instance[key];
  }
  const typed = Object.keys(inputs).filter((key) => isTransformed(dto, key));
  const transformed = typed.length > 0 ? (plainToInstance(dto, pick(inputs, typed)) as Record<string, unknown>) : {};
  for (const [key, value] of Object.entries(inputs)) {
    // Defined, not assigned: "__proto__" is an input name like any other.
    Object.defineProperty(instance, key, {
      value: typed.includes(key) ? transformed[key] : value,
      configurable: true,
      enumerable: true,
      writable: true,
    });
  }
  return instance;
}

function isTransformed(dto: DtoClass, key: string): boolean {
  return (
    defaultMetadataStorage.findTypeMetadata(dto, key) !== undefined ||
    defaultMetadataStorage.findTransformMetadatas(dto, key, TransformationType.PLAIN_TO_CLASS).length > 0
  );
}

function pick(inputs: Record<string, unknown>, keys: string[]): Record<string, unknown> {
  return Object.fromEntries(keys.map((key) => [key, inputs[key]]));
}

/** Would the field be right as text instead of a number or flag, or the other way round? */
async function passesInOtherForm(instance: Record<string, unknown>, error: ValidationError): Promise<boolean> {
  const field = error.property;
  if (error.children?.length) return false;
  for (const form of otherForms(instance[field])) {
    const probe = Object.assign(
      Object.create(Object.getPrototypeOf(instance) as object) as Record<string, unknown>,
      instance,
      { [field]: form },
    );
    if (!(await check(probe)).some((other) => other.property === field)) return true;
  }
  return false;
}

function otherForms(value: unknown): unknown[] {
  if (typeof value === 'number' || typeof value === 'boolean') return [String(value)];
  if (typeof value !== 'string') return [];
  // An optional field that is left empty in the editor.
  if (value.trim() === '') return [undefined];
  const forms: unknown[] = [];
  if (Number.isFinite(Number(value))) forms.push(Number(value));
  if (/^(true|false|1|0)$/i.test(value.trim())) forms.push(/^(true|1)$/i.test(value.trim()));
  return forms;
}

function faultsOf(error: ValidationError, parent: string): InputFault[] {
  const path = `${parent}.${error.property}`;
  const own = Object.entries(error.constraints ?? {}).map(([code, message]) => ({ path, code, message }));
  return [...own, ...(error.children ?? []).flatMap((child) => faultsOf(child, path))];
}
